/* Element-wise float32 kernels; see elementwise_float.h. Arithmetic is float32, functions are libm's. */
#include "elementwise_float.h"

#include <math.h>

#include "dp_rows.h"
#include "dp_types.h"

#define DP_BEGIN(operands)                                                              \
  const dp_elementwise_float_cst *c = (const dp_elementwise_float_cst *)args->cst;      \
  const float a = c->a, b = c->b;                                                       \
  dp_rows r;                                                                            \
  (void)a;                                                                              \
  (void)b;                                                                              \
  for (dp_rows_first(&r, args, team, c->rank, operands); r.run > 0; dp_rows_next(&r))

/* op_*: one function per operation; x, y: inputs, a, b: parameters. */
DP_INLINE float op_neg(float x, float a, float b) { (void)a; (void)b; return -x; }
DP_INLINE float op_abs(float x, float a, float b) { (void)a; (void)b; return fabsf(x); }
DP_INLINE float op_relu(float x, float a, float b) { (void)a; (void)b; return x < 0.0f ? 0.0f : x; }
DP_INLINE float op_sqrt(float x, float a, float b) { (void)a; (void)b; return sqrtf(x); }
DP_INLINE float op_exp(float x, float a, float b) { (void)a; (void)b; return expf(x); }
DP_INLINE float op_log(float x, float a, float b) { (void)a; (void)b; return logf(x); }
DP_INLINE float op_reciprocal(float x, float a, float b) { (void)a; (void)b; return 1.0f / x; }
DP_INLINE float op_ceil(float x, float a, float b) { (void)a; (void)b; return ceilf(x); }
DP_INLINE float op_floor(float x, float a, float b) { (void)a; (void)b; return floorf(x); }
/* Half to even: the rounding mode is never changed. */
DP_INLINE float op_round(float x, float a, float b) { (void)a; (void)b; return rintf(x); }
DP_INLINE float op_sign(float x, float a, float b) { (void)a; (void)b; return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
DP_INLINE float op_erf(float x, float a, float b) { (void)a; (void)b; return erff(x); }
/* The exponential never overflows. */
DP_INLINE float op_sigmoid(float x, float a, float b) {
  const float e = expf(-fabsf(x));
  (void)a;
  (void)b;
  return x < 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
}
DP_INLINE float op_tanh(float x, float a, float b) { (void)a; (void)b; return tanhf(x); }
DP_INLINE float op_clip(float x, float a, float b) { const float low = x < a ? a : x; return low > b ? b : low; }
DP_INLINE float op_clip_low(float x, float a, float b) { (void)b; return x < a ? a : x; }
DP_INLINE float op_clip_high(float x, float a, float b) { (void)a; return x > b ? b : x; }
DP_INLINE float op_hard_sigmoid(float x, float a, float b) { return op_clip(x * a + b, 0.0f, 1.0f); }
DP_INLINE float op_hard_swish(float x, float a, float b) {
  (void)a;
  (void)b;
  return x * op_clip(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f);
}
DP_INLINE float op_swish(float x, float a, float b) { return x * op_sigmoid(a * x, a, b); }
DP_INLINE float op_gelu(float x, float a, float b) {
  (void)a;
  (void)b;
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
DP_INLINE float op_gelu_tanh(float x, float a, float b) {
  (void)a;
  (void)b;
  return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}
DP_INLINE float op_softplus(float x, float a, float b) {
  (void)a;
  (void)b;
  return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}
DP_INLINE float op_leaky_relu(float x, float a, float b) { (void)b; return x < 0.0f ? a * x : x; }
DP_INLINE float op_elu(float x, float a, float b) { (void)b; return x < 0.0f ? a * expm1f(x) : x; }
DP_INLINE float op_selu(float x, float a, float b) { return b * (x > 0.0f ? x : a * expm1f(x)); }

#define DP_DEFINE(name)                                               \
  void dp_##name##_f32(const dp_args *args, const dp_team *team) {    \
    DP_BEGIN(2) {                                                     \
      const float *x = (const float *)args->t[0].ptr + r.at[0];       \
      float *y = (float *)args->t[1].ptr + r.at[1];                   \
      const int32_t sx = r.step[0], sy = r.step[1], n = r.run;        \
      if (sx == 1 && sy == 1)                                         \
        for (int32_t i = 0; i < n; i++) y[i] = op_##name(x[i], a, b); \
      else                                                            \
        for (int32_t i = 0; i < n; i++, x += sx, y += sy) *y = op_##name(*x, a, b); \
    }                                                                 \
  }
DP_FLOAT_UNARY(DP_DEFINE)
#undef DP_DEFINE

DP_INLINE float op_add(float x, float y) { return x + y; }
DP_INLINE float op_sub(float x, float y) { return x - y; }
DP_INLINE float op_mul(float x, float y) { return x * y; }
DP_INLINE float op_div(float x, float y) { return x / y; }
DP_INLINE float op_pow(float x, float y) { return y == 2.0f ? x * x : powf(x, y); }
DP_INLINE float op_min(float x, float y) { return x < y || x != x ? x : y; }
DP_INLINE float op_max(float x, float y) { return x > y || x != x ? x : y; }
DP_INLINE float op_prelu(float x, float y) { return x < 0.0f ? x * y : x; }
DP_INLINE float op_relu_grad(float x, float y) { return y > 0.0f ? x : 0.0f; }
/* d/dy of y * P(y), P the normal distribution's integral: P(y) + y * P'(y). */
DP_INLINE float op_gelu_grad(float x, float y) {
  const float integral = 0.5f * (1.0f + erff(y * 0.70710678118654752f));
  return x * (integral + y * (0.39894228040143268f * expf(-0.5f * y * y)));
}
/* Where tanh has no slope left, its factor is left out: it may be infinite. */
DP_INLINE float op_gelu_tanh_grad(float x, float y) {
  const float square = y * y, t = tanhf(0.79788456080286536f * (y + 0.044715f * square * y));
  const float slope = 1.0f - t * t;
  const float rest = slope > 0.0f ? 0.5f * y * slope * (0.79788456080286536f * (1.0f + 0.134145f * square)) : 0.0f;
  return x * (0.5f * (1.0f + t) + rest);
}

/* The loops over a vector and a vector, and a vector and one element, are worth their own code. */
#define DP_DEFINE(name)                                               \
  void dp_##name##_f32(const dp_args *args, const dp_team *team) {    \
    DP_BEGIN(3) {                                                     \
      const float *x = (const float *)args->t[0].ptr + r.at[0];       \
      const float *y = (const float *)args->t[1].ptr + r.at[1];       \
      float *z = (float *)args->t[2].ptr + r.at[2];                   \
      const int32_t sx = r.step[0], sy = r.step[1], sz = r.step[2], n = r.run; \
      if (sx == 1 && sy == 1 && sz == 1) {                            \
        for (int32_t i = 0; i < n; i++) z[i] = op_##name(x[i], y[i]); \
      } else if (sx == 1 && sy == 0 && sz == 1) {                     \
        const float one = *y;                                         \
        for (int32_t i = 0; i < n; i++) z[i] = op_##name(x[i], one);  \
      } else {                                                        \
        for (int32_t i = 0; i < n; i++, x += sx, y += sy, z += sz) *z = op_##name(*x, *y); \
      }                                                               \
    }                                                                 \
  }
DP_FLOAT_BINARY(DP_DEFINE)
#undef DP_DEFINE

DP_INLINE uint8_t op_equal(float x, float y) { return x == y; }
DP_INLINE uint8_t op_greater(float x, float y) { return x > y; }
DP_INLINE uint8_t op_greater_or_equal(float x, float y) { return x >= y; }
DP_INLINE uint8_t op_less(float x, float y) { return x < y; }
DP_INLINE uint8_t op_less_or_equal(float x, float y) { return x <= y; }

#define DP_DEFINE(name)                                               \
  void dp_##name##_f32(const dp_args *args, const dp_team *team) {    \
    DP_BEGIN(3) {                                                     \
      const float *x = (const float *)args->t[0].ptr + r.at[0];       \
      const float *y = (const float *)args->t[1].ptr + r.at[1];       \
      uint8_t *z = (uint8_t *)args->t[2].ptr + r.at[2];               \
      for (int32_t i = 0; i < r.run; i++, x += r.step[0], y += r.step[1], z += r.step[2]) *z = op_##name(*x, *y); \
    }                                                                 \
  }
DP_FLOAT_COMPARE(DP_DEFINE)
#undef DP_DEFINE

DP_INLINE uint8_t op_isnan(float x, float a, float b) { (void)a; (void)b; return x != x; }
DP_INLINE uint8_t op_true(float x, float a, float b) { (void)x; (void)a; (void)b; return 1; }
DP_INLINE uint8_t op_isinf(float x, float a, float b) { return (a != 0.0f && x < -3.402823466e38f) || (b != 0.0f && x > 3.402823466e38f); }

#define DP_DEFINE(name)                                               \
  void dp_##name##_f32(const dp_args *args, const dp_team *team) {    \
    DP_BEGIN(2) {                                                     \
      const float *x = (const float *)args->t[0].ptr + r.at[0];       \
      uint8_t *y = (uint8_t *)args->t[1].ptr + r.at[1];               \
      for (int32_t i = 0; i < r.run; i++, x += r.step[0], y += r.step[1]) *y = op_##name(*x, a, b); \
    }                                                                 \
  }
DP_FLOAT_TEST(DP_DEFINE)
#undef DP_DEFINE

void dp_clip_between_f32(const dp_args *args, const dp_team *team) {
  DP_BEGIN(4) {
    const float *x = (const float *)args->t[0].ptr + r.at[0];
    const float *lower = (const float *)args->t[1].ptr + r.at[1];
    const float *upper = (const float *)args->t[2].ptr + r.at[2];
    float *y = (float *)args->t[3].ptr + r.at[3];
    for (int32_t i = 0; i < r.run; i++, x += r.step[0], lower += r.step[1], upper += r.step[2], y += r.step[3])
      *y = op_clip(*x, *lower, *upper);
  }
}
