/* Padding with a constant. */
#ifndef DP_PAD_H
#define DP_PAD_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes. value_lo, value_hi: the bits of the value, little end first. end: per axis, the index of y behind the last element
 * of x (the extents of a tile do not tell if x is one repeated element). */
typedef struct dp_pad_cst {
  int32_t rank, value_lo, value_hi;
  int32_t end[DP_RANK];
} dp_pad_cst;

/* y = x where x is present, else the value.
 * Axes: those of y, all parallel. Operands: x (with padding in its interval maps), y; elements of 1, 2, 4 or 8 bytes. */
void dp_pad_1(const dp_args *args, const dp_team *team);
void dp_pad_2(const dp_args *args, const dp_team *team);
void dp_pad_4(const dp_args *args, const dp_team *team);
void dp_pad_8(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
