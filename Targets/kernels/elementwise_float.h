/* Element-wise float32 kernels. Axes and operands as in dp_rows.h: inputs, then the output. Results may be computed in place.
 * Not-a-number is propagated by min, max, clip and relu. */
#ifndef DP_ELEMENTWISE_FLOAT_H
#define DP_ELEMENTWISE_FLOAT_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes; a, b: parameters of the operation as listed below, else 0. */
typedef struct dp_elementwise_float_cst {
  int32_t rank;
  float a, b;
} dp_elementwise_float_cst;

/* One input x. */
#define DP_FLOAT_UNARY(K)                                                                               \
  K(neg) K(abs) K(relu) K(sqrt) K(exp) K(log) K(reciprocal) K(ceil) K(floor) K(round) K(sign) K(erf)    \
  K(sigmoid) K(tanh) K(hard_swish) K(gelu) K(gelu_tanh) K(softplus)                                     \
  K(leaky_relu)   /* a: slope below zero */                                                             \
  K(clip)         /* a: lower, b: upper bound */                                                        \
  K(clip_low)     /* a: lower bound */                                                                  \
  K(clip_high)    /* b: upper bound */                                                                  \
  K(hard_sigmoid) /* a: slope, b: value at zero */                                                      \
  K(swish)        /* a: factor inside the sigmoid */                                                    \
  K(elu)          /* a: alpha */                                                                        \
  K(selu)         /* a: alpha, b: gamma */
/* Two inputs x, y. prelu: y is the slope. *_grad: x is the gradient of the function's result, y the function's operand (relu_grad: or its
 * result), the output is the gradient of the operand. */
#define DP_FLOAT_BINARY(K)                                              \
  K(add) K(sub) K(mul) K(div) K(pow) K(min) K(max) K(prelu)             \
  K(relu_grad) K(gelu_grad) K(gelu_tanh_grad)
/* Two inputs, a boolean output. */
#define DP_FLOAT_COMPARE(K) K(equal) K(greater) K(greater_or_equal) K(less) K(less_or_equal)
/* One input, a boolean output. isinf: a, b: whether negative, positive infinity counts; true: whatever x is. */
#define DP_FLOAT_TEST(K) K(isnan) K(isinf) K(true)

#define DP_DECLARE(name) void dp_##name##_f32(const dp_args *args, const dp_team *team);
DP_FLOAT_UNARY(DP_DECLARE)
DP_FLOAT_BINARY(DP_DECLARE)
DP_FLOAT_COMPARE(DP_DECLARE)
DP_FLOAT_TEST(DP_DECLARE)
#undef DP_DECLARE
/* Clip with bounds that are tensors: inputs x, lower, upper. */
void dp_clip_between_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
