/* Element-wise kernels on booleans, and selection. Axes and operands as in dp_rows.h. A boolean is a byte that is 0 or 1. */
#ifndef DP_LOGIC_H
#define DP_LOGIC_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes. */
typedef struct dp_logic_cst {
  int32_t rank;
} dp_logic_cst;

/* Inputs x, y; output z. */
void dp_and_b8(const dp_args *args, const dp_team *team);
void dp_or_b8(const dp_args *args, const dp_team *team);
void dp_xor_b8(const dp_args *args, const dp_team *team);
/* Input x; output y. */
void dp_not_b8(const dp_args *args, const dp_team *team);
/* Inputs condition, x, y; output: condition ? x : y; elements of 1, 2, 4 or 8 bytes. */
void dp_where_1(const dp_args *args, const dp_team *team);
void dp_where_2(const dp_args *args, const dp_team *team);
void dp_where_4(const dp_args *args, const dp_team *team);
void dp_where_8(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
