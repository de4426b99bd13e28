/* Copies between tiles of any strides: materialised transposes, slices, pieces of a concatenation. */
#ifndef DP_COPY_H
#define DP_COPY_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes (dp_rows.h). */
typedef struct dp_copy_cst {
  int32_t rank;
} dp_copy_cst;

/* Operands: source, target; elements of 1, 2, 4 or 8 bytes. Axes as in dp_rows.h. */
void dp_copy_1(const dp_args *args, const dp_team *team);
void dp_copy_2(const dp_args *args, const dp_team *team);
void dp_copy_4(const dp_args *args, const dp_team *team);
void dp_copy_8(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
