/* Losses and their gradients. Float.
 *
 * Class tensors are seen as (n, c, d): batch, classes, all positions; labels as (n, d), of any integer type (dp_types.h). A label that is
 * neither a class nor the ignored one gives NaN; nothing is read for it. */
#ifndef DP_LOSS_H
#define DP_LOSS_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* type: of labels. classes: length of c. weighted: whether there is an operand with a weight per class. lane: number of the first sum.
 * count: what the sum of losses is divided by. ignored64: label that counts nothing; ignores: whether there is one. */
typedef struct dp_nll_cst {
  int32_t type, classes, weighted, lane, ignores;
  float count;
  int64_t ignored64;
} dp_nll_cst;

/* Loss of each label: -weight[label] * log_prob[n, label, d]; 0 where ignored.
 * Axes: n, d. Operands: 0: y (n, d)   1: labels (n, d)   2: log_prob (n, c, d), all of c   3, if weighted: weights (c), all of c. */
void dp_nll_each_f32(const dp_args *args, const dp_team *team);

/* Sums over all labels, in the order n, d: lane 0: of the losses, divided by count; lane 1: of the weights (1 if not weighted) of labels
 * that are not ignored. One core makes one sum; it may be split along n, or along d if n is 1.
 * Axes: k (sums) | n, d (reduced). Operands: 0: y (k)   1: labels (n, d)   2: log_prob (n, c, d), all of c   3, if weighted: weights (c).
 * Accumulators: float. */
void dp_nll_sum_f32(const dp_args *args, const dp_team *team);

/* type, classes, weighted, ignores, ignored64: as above. scaled: whether there is a gradient of the loss, per label or one for all;
 * totalled: whether there is a sum of weights, which divides. count: divides as well. */
typedef struct dp_cross_entropy_grad_cst {
  int32_t type, classes, weighted, ignores, scaled, totalled;
  float count;
  int64_t ignored64;
} dp_cross_entropy_grad_cst;

/* dx = (exp(log_prob) - (c is the label)) * gradient * weight[label] / total / count; 0 where ignored.
 * Axes: n, c, d. Operands: log_prob (n, c, d), labels (n, d), dx (n, c, d), which may be log_prob, then as far as they are there:
 * gradient (n, d), weights (all of c), total (one). */
void dp_cross_entropy_grad_f32(const dp_args *args, const dp_team *team);

/* rank: number of axes but the reduced one for dp_mse_f32 (0), of all for dp_mse_grad_f32. count: divides. */
typedef struct dp_mse_cst {
  int32_t rank;
  float count;
} dp_mse_cst;

/* Sum of (a - b)^2, divided by count. Axis: r (reduced, may be split). Operands: 0: y (1)   1: a (r)   2: b (r). Accumulator: float. */
void dp_mse_f32(const dp_args *args, const dp_team *team);

/* da = 2 * (a - b) / count, element by element (dp_rows.h). Operands: a, b, da, which may be a or b. */
void dp_mse_grad_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
