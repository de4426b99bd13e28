/* Batch normalisation in training: statistics of the batch, and the gradients. Float.
 *
 * Tensors are seen as (n, c, r): batch, channels, all spatial positions. Every sum over positions is one chain in their order, kept per
 * (n, c); sums over the batch are made from these in the order of n. So no sum depends on tiles or cores.
 */
#ifndef DP_BATCH_NORM_TRAINING_H
#define DP_BATCH_NORM_TRAINING_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* batch: length of n; count: positions per (n, c). epsilon: added to the variance. momentum: share of the old running statistics. */
typedef struct dp_batch_norm_training_cst {
  int32_t batch, count;
  float epsilon, momentum;
} dp_batch_norm_training_cst;

/* Statistics in one pass over x: with s, the first x of the (n, c), the sums of (x - s) and of (x - s)^2. The shift by an element of the
 * data bounds the cancellation: (mean - s)^2 is at most count * variance, whatever the mean is.
 * Axes: n, c | r (reduced, may be split). Operands: 0: (s, sum, sum of squares) (n, c, 3)   1: x (n, c, r)
 * Accumulators: float, like operand 0. No constants. */
void dp_batch_norm_sums_f32(const dp_args *args, const dp_team *team);

/* From these the mean and the variance (of the population) of each channel, merged over the batch so that nothing cancels.
 * Axis: c. Operands: 0: sums (n, c, 3)   1: scale (c)   2: bias (c)   3: running mean (c), updated   4: running variance (c), updated
 * 5: mean (c)   6: 1 / sqrt(variance + epsilon) (c)   7: (mean, factor, bias) (c, 3): y = (x - mean) * factor + bias
 * running = momentum * running + (1 - momentum) * of the batch. Constants: dp_batch_norm_training_cst. */
void dp_batch_norm_finish_f32(const dp_args *args, const dp_team *team);

/* y = (x - mean) * factor + bias. Axes: n, c, r. Operands: 0: x (n, c, r)   1: (mean, factor, bias) (c, 3)   2: y (n, c, r), may be x.
 * No constants. */
void dp_batch_norm_apply_f32(const dp_args *args, const dp_team *team);

/* Sums of dy and of dy * (x - mean) * inverse deviation.
 * Axes: n, c | r (reduced, may be split). Operands: 0: the two sums (n, c, 2)   1: dy (n, c, r)   2: x (n, c, r)   3: mean (c)
 * 4: inverse deviation (c). Accumulators: float, like operand 0. No constants. */
void dp_batch_norm_grad_sums_f32(const dp_args *args, const dp_team *team);

/* Axis: c. Operands: 0: sums (n, c, 2)   1: scale (c)   2: mean (c)   3: inverse deviation (c)   4: dscale (c)   5: dbias (c)
 * 6: (a, mean, b, g) (c, 4): dx = a * ((dy - b) - (x - mean) * g). Constants: dp_batch_norm_training_cst (batch, count). */
void dp_batch_norm_grad_finish_f32(const dp_args *args, const dp_team *team);

/* Axes: n, c, r. Operands: 0: dy (n, c, r)   1: x (n, c, r)   2: (a, mean, b, g) (c, 4)   3: dx (n, c, r), may be dy or x. No constants. */
void dp_batch_norm_grad_apply_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
