/* Element-wise integer kernels; see elementwise_integer.h. Sums and products are computed unsigned, so nothing overflows. */
#include "elementwise_integer.h"

#include "dp_rows.h"
#include "dp_types.h"

/* x < y; wide: both are bit patterns of uint64. */
DP_INLINE int dp_below(int64_t x, int64_t y, int wide) { return wide ? (uint64_t)x < (uint64_t)y : x < y; }

DP_INLINE int64_t op_add(int64_t x, int64_t y, int wide) { (void)wide; return (int64_t)((uint64_t)x + (uint64_t)y); }
DP_INLINE int64_t op_sub(int64_t x, int64_t y, int wide) { (void)wide; return (int64_t)((uint64_t)x - (uint64_t)y); }
DP_INLINE int64_t op_mul(int64_t x, int64_t y, int wide) { (void)wide; return (int64_t)((uint64_t)x * (uint64_t)y); }
DP_INLINE int64_t op_div(int64_t x, int64_t y, int wide) {
  if (y == 0) return 0;
  if (wide) return (int64_t)((uint64_t)x / (uint64_t)y);
  if (y == -1) return (int64_t)(0u - (uint64_t)x);
  return x / y;
}
DP_INLINE int64_t op_min(int64_t x, int64_t y, int wide) { return dp_below(y, x, wide) ? y : x; }
DP_INLINE int64_t op_max(int64_t x, int64_t y, int wide) { return dp_below(x, y, wide) ? y : x; }
DP_INLINE int64_t op_pow(int64_t x, int64_t y, int wide) {
  uint64_t base = (uint64_t)x, result = 1;
  if (y < 0 && !wide) return x == 1 || (x == -1 && (y & 1) == 0) ? 1 : x == -1 ? -1 : 0;
  for (uint64_t e = (uint64_t)y; e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return (int64_t)result;
}
DP_INLINE int64_t op_prelu(int64_t x, int64_t y, int wide) { return x < 0 && !wide ? op_mul(x, y, 0) : x; }
DP_INLINE int64_t op_equal(int64_t x, int64_t y, int wide) { (void)wide; return x == y; }
DP_INLINE int64_t op_greater(int64_t x, int64_t y, int wide) { return dp_below(y, x, wide); }
DP_INLINE int64_t op_greater_or_equal(int64_t x, int64_t y, int wide) { return !dp_below(x, y, wide); }
DP_INLINE int64_t op_less(int64_t x, int64_t y, int wide) { return dp_below(x, y, wide); }
DP_INLINE int64_t op_less_or_equal(int64_t x, int64_t y, int wide) { return !dp_below(y, x, wide); }
DP_INLINE int64_t op_neg(int64_t x, int wide) { (void)wide; return (int64_t)(0u - (uint64_t)x); }
DP_INLINE int64_t op_abs(int64_t x, int wide) { return x < 0 && !wide ? (int64_t)(0u - (uint64_t)x) : x; }
DP_INLINE int64_t op_relu(int64_t x, int wide) { return x < 0 && !wide ? 0 : x; }
DP_INLINE int64_t op_sign(int64_t x, int wide) { return x == 0 ? 0 : x < 0 && !wide ? -1 : 1; }

#define DP_DEFINE(name)                                                                                                  \
  DP_INLINE void rows_##name(const dp_args *args, const dp_team *team, int32_t tx, int32_t ty, int32_t tz) {             \
    const dp_elementwise_integer_cst *c = (const dp_elementwise_integer_cst *)args->cst;                                 \
    const int wide = tx == DP_U64;                                                                                       \
    const void *x = args->t[0].ptr, *y = args->t[1].ptr;                                                                 \
    void *z = args->t[2].ptr;                                                                                            \
    dp_rows r;                                                                                                           \
    for (dp_rows_first(&r, args, team, c->rank, 3); r.run > 0; dp_rows_next(&r)) {                                       \
      const int32_t n = r.run, sx = r.step[0], sy = r.step[1], sz = r.step[2];                                           \
      int32_t ix = r.at[0], iy = r.at[1], iz = r.at[2];                                                                  \
      for (int32_t i = 0; i < n; i++, ix += sx, iy += sy, iz += sz)                                                      \
        dp_store(z, tz, iz, op_##name(dp_load(x, tx, ix), dp_load(y, ty, iy), wide));                                    \
    }                                                                                                                    \
  }                                                                                                                      \
  void dp_##name##_int(const dp_args *args, const dp_team *team) {                                                       \
    const dp_elementwise_integer_cst *c = (const dp_elementwise_integer_cst *)args->cst;                                 \
    rows_##name(args, team, c->type_x, c->type_y, c->type_z);                                                            \
  }
DP_INTEGER_BINARY(DP_DEFINE)
DP_INTEGER_COMPARE(DP_DEFINE)
#undef DP_DEFINE

#define DP_DEFINE(name, x, X, y, Y, z, Z)                                                   \
  void dp_##name##_##x##_##y##_##z(const dp_args *args, const dp_team *team) {              \
    rows_##name(args, team, DP_##X, DP_##Y, DP_##Z);                                        \
  }
DP_INTEGER_FAST(DP_DEFINE, add)
DP_INTEGER_FAST(DP_DEFINE, sub)
DP_INTEGER_FAST(DP_DEFINE, mul)
#undef DP_DEFINE

#define DP_DEFINE(name)                                                                                 \
  void dp_##name##_int(const dp_args *args, const dp_team *team) {                                      \
    const dp_elementwise_integer_cst *c = (const dp_elementwise_integer_cst *)args->cst;                \
    const int wide = c->type_x == DP_U64;                                                               \
    dp_rows r;                                                                                          \
    for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {                      \
      int32_t ix = r.at[0], iz = r.at[1];                                                               \
      for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iz += r.step[1])                             \
        dp_store(args->t[1].ptr, c->type_z, iz, op_##name(dp_load(args->t[0].ptr, c->type_x, ix), wide)); \
    }                                                                                                   \
  }
DP_INTEGER_UNARY(DP_DEFINE)
#undef DP_DEFINE

void dp_clip_between_int(const dp_args *args, const dp_team *team) {
  const dp_elementwise_integer_cst *c = (const dp_elementwise_integer_cst *)args->cst;
  const int32_t type = c->type_x;
  const int wide = type == DP_U64;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 4); r.run > 0; dp_rows_next(&r)) {
    for (int32_t i = 0; i < r.run; i++) {
      const int64_t x = dp_load(args->t[0].ptr, type, r.at[0] + i * r.step[0]);
      const int64_t low = op_max(x, dp_load(args->t[1].ptr, type, r.at[1] + i * r.step[1]), wide);
      dp_store(args->t[3].ptr, type, r.at[3] + i * r.step[3], op_min(low, dp_load(args->t[2].ptr, type, r.at[2] + i * r.step[2]), wide));
    }
  }
}

void dp_clip_int(const dp_args *args, const dp_team *team) {
  const dp_clip_int_cst *c = (const dp_clip_int_cst *)args->cst;
  const int32_t type = c->type;
  const int64_t lo = c->lo64, hi = c->hi64;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    int32_t ix = r.at[0], iy = r.at[1];
    for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iy += r.step[1]) {
      const int64_t x = op_max(dp_load(args->t[0].ptr, type, ix), lo, 0);
      dp_store(args->t[1].ptr, type, iy, op_min(x, hi, 0));
    }
  }
}
