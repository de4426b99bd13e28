/* Gradients of poolings. Float. */
#ifndef DP_POOL_GRAD_H
#define DP_POOL_GRAD_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* type: of the indices (dp_types.h). channels, height, width: of the whole dx. block_*: rows and columns of dx per point of the axes qh,
 * qw. out_*: rows and columns of the whole dy. extent_*: of the dilated window. pad_*: before. first_*, step_*: the tile of dy begins with
 * the row step_h * (first qh) + first_h (which may be before row 0). column_major: whether indices count down columns first. */
typedef struct dp_max_pool_grad_cst {
  int32_t type, channels, height, width, block_h, block_w, out_h, out_w, stride_h, stride_w, extent_h, extent_w;
  int32_t pad_top, pad_left, first_h, first_w, step_h, step_w, column_major;
} dp_max_pool_grad_cst;

/* Every element of dx is the sum of dy over the windows that hold it and whose index is its own, in the order of dy.
 * Axes: n, c, qh, qw. Operands: 0: dx (n, c, h, w)   1: dy (n, c, oh, ow)   2: indices of the maxima in the whole input (n, c, oh, ow). */
void dp_max_pool_grad_f32(const dp_args *args, const dp_team *team);

/* rank: number of axes. count: elements per average. */
typedef struct dp_average_grad_cst {
  int32_t rank;
  float count;
} dp_average_grad_cst;

/* dx = dy / count. Operands as in dp_rows.h: dy, broadcast to dx; dx. */
void dp_global_average_grad_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
