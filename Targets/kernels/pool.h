/* Pooling with one or two spatial axes (one: height 1); a global pooling is one whose window is the whole input.
 *
 * Axes:     n, c, oh, ow | kh, kw          (kh, kw are reduced, and may be split; not by dp_pool_argmax_*)
 * Operands: 0: y (n, c, oh, ow)   1: x (n, c, h, w)   2, dp_pool_argmax_* only: indices, int64 (n, c, oh, ow)
 * Strides are free. Padding is never an element: a maximum ignores it (a window of padding alone gives the lowest value), an average
 * counts it only if include_pad says so, and never beyond the padded input. Positions and divisors are computed from absolute indices.
 * Accumulators: the element type. No scratch. Additions of an average run over kh, kw in this order; such a reduction may only be split
 * along the first of them that is longer than 1.
 */
#ifndef DP_POOL_H
#define DP_POOL_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* channels, height, width: of the whole input; kernel_*: of the whole window; pads: before and after.
 * column_major: whether indices count down columns first (storage_order 1). */
typedef struct dp_pool_cst {
  int32_t channels, height, width, kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
  int32_t pad_top, pad_left, pad_bottom, pad_right;
  int32_t include_pad, column_major;
} dp_pool_cst;

void dp_pool_max_i8(const dp_args *args, const dp_team *team);
void dp_pool_max_u8(const dp_args *args, const dp_team *team);
void dp_pool_max_i16(const dp_args *args, const dp_team *team);
void dp_pool_max_u16(const dp_args *args, const dp_team *team);
void dp_pool_max_i32(const dp_args *args, const dp_team *team);
void dp_pool_max_u32(const dp_args *args, const dp_team *team);
void dp_pool_max_i64(const dp_args *args, const dp_team *team);
void dp_pool_max_u64(const dp_args *args, const dp_team *team);
void dp_pool_max_f32(const dp_args *args, const dp_team *team);
void dp_pool_average_f32(const dp_args *args, const dp_team *team);
/* The maximum and the flat index of its first occurrence in the whole of x. */
void dp_pool_argmax_i8(const dp_args *args, const dp_team *team);
void dp_pool_argmax_u8(const dp_args *args, const dp_team *team);
void dp_pool_argmax_i32(const dp_args *args, const dp_team *team);
void dp_pool_argmax_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
