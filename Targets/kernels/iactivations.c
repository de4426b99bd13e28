/* Integer forms of non-linear operations; see iactivations.h. */
#include "iactivations.h"

#include "dp_rows.h"
#include "dp_types.h"

DP_INLINE int32_t igelu_32(int32_t x, int32_t b, int32_t one) {
  const int32_t q = dp_min(x < 0 ? -x : x, -b) + b, l = one - q * q;
  return x * ((one + (x > 0 ? l : x < 0 ? -l : 0)) >> 1);
}
DP_INLINE int64_t igelu_64(int64_t x, int64_t b, int64_t one) {
  const int64_t magnitude = x < 0 ? -x : x, q = (magnitude < -b ? magnitude : -b) + b, l = one - q * q;
  return x * ((one + (x > 0 ? l : x < 0 ? -l : 0)) >> 1);
}

DP_INLINE int32_t ihardswish_32(int32_t x, int32_t three, int32_t six, int32_t sixth) { return x * (dp_clamp(x + three, 0, six) * sixth); }
DP_INLINE int64_t ihardswish_64(int64_t x, int64_t three, int64_t six, int64_t sixth) {
  const int64_t t = x + three;
  return x * ((t < 0 ? 0 : t > six ? six : t) * sixth);
}

DP_INLINE int64_t floor_div(int64_t n, int64_t d) {
  const int64_t q = n / d;
  return n % d != 0 && (n < 0) != (d < 0) ? q - 1 : q;
}

DP_INLINE int32_t floor_div_32(int32_t n, int32_t d) {
  const int32_t q = n / d;
  return n % d != 0 && (n < 0) != (d < 0) ? q - 1 : q;
}

/* Loops over one input in 32 and in 64 bits; the expressions use x and the parameters pa, pb, pc. */
#define DP_ONE(name, narrow_expression, wide_expression)                                                     \
  void dp_##name(const dp_args *args, const dp_team *team) {                                                 \
    const dp_iactivations_cst *c = (const dp_iactivations_cst *)args->cst;                                   \
    const void *in = args->t[0].ptr;                                                                         \
    dp_rows r;                                                                                               \
    for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {                           \
      int32_t ix = r.at[0], iz = r.at[1];                                                                    \
      if (c->narrow) {                                                                                       \
        const int32_t pa = (int32_t)c->a64, pb = (int32_t)c->b64, pc = (int32_t)c->c64;                      \
        (void)pc;                                                                                            \
        for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iz += r.step[1]) {                              \
          const int32_t x = (int32_t)dp_load(in, c->type_x, ix);                                             \
          dp_store(args->t[1].ptr, c->type_z, iz, narrow_expression);                                        \
        }                                                                                                    \
        continue;                                                                                            \
      }                                                                                                      \
      const int64_t pa = c->a64, pb = c->b64, pc = c->c64;                                                   \
      (void)pc;                                                                                              \
      for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iz += r.step[1]) {                                \
        const int64_t x = dp_load(in, c->type_x, ix);                                                        \
        dp_store(args->t[1].ptr, c->type_z, iz, wide_expression);                                            \
      }                                                                                                      \
    }                                                                                                        \
  }
DP_ONE(igelu, igelu_32(x, pa, pb), igelu_64(x, pa, pb))
DP_ONE(ihardswish, ihardswish_32(x, pa, pb, pc), ihardswish_64(x, pa, pb, pc))
DP_ONE(true_integer_div_by, floor_div_32(pa * x, pb), floor_div(pa * x, pb))

DP_INLINE int64_t op_true_integer_div(int64_t n, int64_t d) { return d == 0 ? 0 : floor_div(n, d); }
DP_INLINE int64_t op_integer_div(int64_t n, int64_t d) {
  if (d == 0) return 0;
  return (n < 0 ? n - (d >> 1) : n + (d >> 1)) / d;
}

#define DP_TWO(name)                                                                                         \
  void dp_##name(const dp_args *args, const dp_team *team) {                                                 \
    const dp_iactivations_cst *c = (const dp_iactivations_cst *)args->cst;                                   \
    dp_rows r;                                                                                               \
    for (dp_rows_first(&r, args, team, c->rank, 3); r.run > 0; dp_rows_next(&r)) {                           \
      int32_t ix = r.at[0], iy = r.at[1], iz = r.at[2];                                                      \
      for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iy += r.step[1], iz += r.step[2]) {               \
        const int64_t n = c->a64 * dp_load(args->t[0].ptr, c->type_x, ix);                                   \
        const int64_t d = c->b64 * dp_load(args->t[1].ptr, c->type_y, iy) + c->c64;                          \
        dp_store(args->t[2].ptr, c->type_z, iz, op_##name(n, d));                                            \
      }                                                                                                      \
    }                                                                                                        \
  }
DP_TWO(true_integer_div)
DP_TWO(integer_div)

void dp_inonorm(const dp_args *args, const dp_team *team) {
  const dp_iactivations_cst *c = (const dp_iactivations_cst *)args->cst;
  const int32_t shift = (int32_t)c->b64;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 4); r.run > 0; dp_rows_next(&r)) {
    for (int32_t i = 0; i < r.run; i++) {
      const int64_t x = dp_load(args->t[0].ptr, c->type_x, r.at[0] + i * r.step[0]);
      const int64_t w = dp_load(args->t[1].ptr, c->type_y, r.at[1] + i * r.step[1]);
      const int64_t b = dp_load(args->t[2].ptr, c->type_b, r.at[2] + i * r.step[2]);
      const int64_t z = ((x * w + b) * c->a64) >> shift;
      ((int8_t *)args->t[3].ptr)[r.at[3] + i * r.step[3]] = (int8_t)(z < -128 ? -128 : z > 127 ? 127 : z);
    }
  }
}
