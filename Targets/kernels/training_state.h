/* Updates of trained state, in place: accumulation of gradients, and steps of gradient descent. Float.
 * Axes and operands as in dp_rows.h; the last operand is the state, read and written. */
#ifndef DP_TRAINING_STATE_H
#define DP_TRAINING_STATE_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes. flagged: whether there is a reset flag. */
typedef struct dp_gradient_accumulate_cst {
  int32_t rank, flagged;
} dp_gradient_accumulate_cst;

/* buffer = gradient where the flag is set, else buffer + gradient: what is in the buffer before a reset never shows, not even a NaN.
 * Operands: gradient, flag (one byte for all elements) if there is one, buffer. */
void dp_gradient_accumulate_f32(const dp_args *args, const dp_team *team);

/* rank: number of axes. rate: step size. */
typedef struct dp_sgd_cst {
  int32_t rank;
  float rate;
} dp_sgd_cst;

/* weight = weight - rate * gradient. Operands: gradient, weight. */
void dp_sgd_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
