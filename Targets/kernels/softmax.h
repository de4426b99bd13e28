/* Softmax and LogSoftmax in float, and the gradient of Softmax. */
#ifndef DP_SOFTMAX_H
#define DP_SOFTMAX_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of parallel axes (dp_lines.h); log: whether the logarithm of the softmax is wanted. */
typedef struct dp_softmax_cst {
  int32_t rank, log;
} dp_softmax_cst;

/* Axes: parallel ones, then the line. Operands: x, y (float). In place if x and y are the same tile. */
void dp_softmax_f32(const dp_args *args, const dp_team *team);

/* rank: number of parallel axes (dp_lines.h). */
typedef struct dp_softmax_grad_cst {
  int32_t rank;
} dp_softmax_grad_cst;

/* dx = y * (dy - sum(dy * y)), y the result of the softmax, the sum over the line.
 * Axes: parallel ones, then the line. Operands: dy, dx, y (float). In place if dy and dx are the same tile. */
void dp_softmax_grad_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
