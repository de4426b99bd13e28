/* Gradients of a convolution (conv.h) y = conv(x, w): dx and dw from dy; dx as a gather, so that every element is one chain of additions
 * and no two cores write the same one. The gradient of the bias is a plain sum (reduce.h).
 *
 * Channels are regrouped as in conv.h: oc, ic are channels within a group g. A 1-D convolution has height 1. Strides are free. */
#ifndef DP_CONV_GRAD_H
#define DP_CONV_GRAD_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of height and width each: out: of the whole dy; taps of the window; pad: before the first row or column of x.
 * period, drop: the taps that meet one row of dx are `period` apart, and from one to the next the row of dy falls by `drop`:
 *               stride / gcd(stride, dilation) and dilation / gcd(stride, dilation).
 * scale, begin: the tile of dy begins at row scale * (first block of the tile) + begin, unless that is negative (dp_tile.pad).
 * block:        a divisor of the number of output channels of a group; tiles begin and end at multiples of it. */
typedef struct dp_conv_grad_x_cst {
  int32_t out[2], taps[2], stride[2], dilation[2], pad[2], period[2], drop[2], scale[2], begin[2];
  int32_t block;
} dp_conv_grad_x_cst;

/* Axes:     n, g, ic, block_h, phase_h, block_w, phase_w | oc    (oc is reduced, and may be split)
 *           A row of dx is block_h * (number of phases) + phase_h. All phases of a block are in the tile.
 * Operands: 0: dx (n, g, ic, h, w)   1: dy (n, g, oc, oh, ow)   2: w (g, oc, ic, kh, kw), all taps of it
 * The chain of additions of an element runs over (block of oc, kh, kw, oc within the block) in this order. Accumulators: float.
 * No scratch. */
void dp_conv_grad_x_f32(const dp_args *args, const dp_team *team);

/* height, width: of the whole x. rows_first: the chain of additions runs over oh, n, ow instead of n, oh, ow. */
typedef struct dp_conv_grad_w_cst {
  int32_t height, width, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w, rows_first;
} dp_conv_grad_w_cst;

/* Axes:     g, oc, ic, kh, kw | n, oh, ow    (n, oh, ow are reduced; the first in the chain's order that is longer than 1 may be split)
 * Operands: 0: dw (g, oc, ic, kh, kw)   1: dy (n, g, oc, oh, ow)   2: x (n, g, ic, h, w)
 * Accumulators: float. No scratch. */
void dp_conv_grad_w_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
