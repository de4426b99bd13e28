/* Gradients of layer normalisation. With x' = (x - mean) * inverse, inverse = 1 / sqrt(var + epsilon), the forward operator is
 * y = x' * scale + bias over whole lines. */
#ifndef DP_NORM_GRAD_H
#define DP_NORM_GRAD_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of parallel axes (dp_lines.h). given: whether the statistics are operands; else they are computed from x.
 * epsilon: added to the variance. */
typedef struct dp_norm_grad_cst {
  int32_t rank, given;
  float epsilon;
} dp_norm_grad_cst;

/* dx = inverse * (g - mean(g) - x' * mean(g * x')), g = dy * scale, the means over the line.
 * Axes: parallel ones, then two that make a line together. Operands: dy, dx, x, scale, and with `given` mean and inverse; all have one
 * dimension per axis. In place if dy and dx are the same tile. */
void dp_norm_grad_f32(const dp_args *args, const dp_team *team);

/* rank: axes along the line, which are parallel here; reduced: axes over the lines, after them. */
typedef struct dp_norm_scale_grad_cst {
  int32_t rank, reduced;
} dp_norm_scale_grad_cst;

/* dscale = sum of dy * x' over the lines, in the order of the reduced axes; a split reduction continues from `acc`.
 * Axes: the parallel ones, then the reduced ones. Operands: dy, x, mean, inverse [all axes], dscale [parallel]. */
void dp_norm_scale_grad_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
