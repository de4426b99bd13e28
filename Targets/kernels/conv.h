/* Convolutions with one or two spatial axes (one: height 1), groups, strides, dilation and unequal padding.
 *
 * Axes:     n, g, oc, oh, ow | ic, kh, kw      (oc, ic: channels within a group; ic, kh, kw are reduced, and may be split)
 * Operands: 0: y (n, g, oc, oh, ow)   1: x (n, g, ic, h, w)   2: w (g, oc, ic, kh, kw)
 *           then, at the slots that the constant struct names (-1: absent), operands with the dimensions of y, any of them broadcast:
 *           bias, mul, add.
 * Strides are free. Padding is not in memory: positions are absolute (from lo[]), so a tile may begin anywhere.
 * Accumulators: int32_t (the typed kernels), int64_t (dp_conv_any), float. No scratch.
 * The chain of additions of an output element runs over ic, kh, kw in this order; a float reduction may only be split along the first
 * of them that is longer than 1.
 */
#ifndef DP_CONV_H
#define DP_CONV_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* height, width: of the whole input; pad_*: before the first row and column; *_type: type codes (dp_types.h).
 * requantise: whether mul, add, shift, lo, hi, wide apply. */
typedef struct dp_conv_cst {
  int32_t height, width, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int32_t x_type, w_type, bias_type, y_type;
  int32_t bias, mul, add;
  int32_t requantise, shift, lo, hi, wide;
} dp_conv_cst;

/* int32_t accumulators. The compiler has proven that the sum with the bias and its parts fit in 32 bits. */
void dp_conv_i8_i8(const dp_args *args, const dp_team *team);
void dp_conv_i8_u8(const dp_args *args, const dp_team *team);
void dp_conv_u8_i8(const dp_args *args, const dp_team *team);
void dp_conv_u8_u8(const dp_args *args, const dp_team *team);
/* Any integer types, int64_t accumulators; slow. */
void dp_conv_any(const dp_args *args, const dp_team *team);
void dp_conv_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
