/* Requantisation kernels; see requant.h. */
#include "requant.h"

#include "dp_requant.h"
#include "dp_rows.h"
#include "dp_types.h"

DP_INLINE void rows_requant(const dp_args *args, const dp_team *team, int32_t type) {
  const dp_requant_cst *c = (const dp_requant_cst *)args->cst;
  dp_requant q;
  dp_rows r;
  q.shift = c->shift;
  q.lo = c->lo;
  q.hi = c->hi;
  q.wide = c->wide;
  for (dp_rows_first(&r, args, team, c->rank, 4); r.run > 0; dp_rows_next(&r)) {
    const void *x = args->t[0].ptr;
    const int32_t *mul = (const int32_t *)args->t[1].ptr + r.at[1], *add = (const int32_t *)args->t[2].ptr + r.at[2];
    uint8_t *y = (uint8_t *)args->t[3].ptr + r.at[3];
    const int32_t n = r.run, sx = r.step[0], sm = r.step[1], sa = r.step[2], sy = r.step[3];
    int32_t ix = r.at[0];
    if (sm == 0 && sa == 0) {
      const int32_t m = *mul, b = *add;
      for (int32_t i = 0; i < n; i++, ix += sx, y += sy) *y = (uint8_t)dp_requantize(dp_load(x, type, ix), m, b, &q);
      continue;
    }
    for (int32_t i = 0; i < n; i++, ix += sx, mul += sm, add += sa, y += sy)
      *y = (uint8_t)dp_requantize(dp_load(x, type, ix), *mul, *add, &q);
  }
}

void dp_requant_i8(const dp_args *args, const dp_team *team) { rows_requant(args, team, DP_I8); }
void dp_requant_u8(const dp_args *args, const dp_team *team) { rows_requant(args, team, DP_U8); }
void dp_requant_i32(const dp_args *args, const dp_team *team) { rows_requant(args, team, DP_I32); }
void dp_requant_int(const dp_args *args, const dp_team *team) {
  rows_requant(args, team, ((const dp_requant_cst *)args->cst)->type);
}

DP_INLINE void rows_requantized_add(const dp_args *args, const dp_team *team, int32_t type_a, int32_t type_b) {
  const dp_requantized_add_cst *c = (const dp_requantized_add_cst *)args->cst;
  const dp_requant qa = {c->shift_a, c->lo_a, c->hi_a, c->wide_a};
  const dp_requant qb = {c->shift_b, c->lo_b, c->hi_b, c->wide_b};
  const dp_requant q = {c->shift, c->lo, c->hi, c->wide};
  const int32_t mul_a = c->mul_a, add_a = c->add_a, mul_b = c->mul_b, add_b = c->add_b;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 5); r.run > 0; dp_rows_next(&r)) {
    const int32_t *mul = (const int32_t *)args->t[2].ptr + r.at[2], *add = (const int32_t *)args->t[3].ptr + r.at[3];
    uint8_t *y = (uint8_t *)args->t[4].ptr + r.at[4];
    const void *ta = args->t[0].ptr, *tb = args->t[1].ptr;
    const int32_t n = r.run, s0 = r.step[0], s1 = r.step[1], sm = r.step[2], sa = r.step[3], sy = r.step[4];
    int32_t ia = r.at[0], ib = r.at[1];
    for (int32_t i = 0; i < n; i++, ia += s0, ib += s1, mul += sm, add += sa, y += sy) {
      const int32_t a = dp_requantize(dp_load(ta, type_a, ia), mul_a, add_a, &qa);
      const int32_t b = dp_requantize(dp_load(tb, type_b, ib), mul_b, add_b, &qb);
      *y = (uint8_t)dp_requantize((int64_t)a + b, *mul, *add, &q);
    }
  }
}

void dp_requantized_add_i8_i8(const dp_args *args, const dp_team *team) { rows_requantized_add(args, team, DP_I8, DP_I8); }
void dp_requantized_add_int(const dp_args *args, const dp_team *team) {
  const dp_requantized_add_cst *c = (const dp_requantized_add_cst *)args->cst;
  rows_requantized_add(args, team, c->type_a, c->type_b);
}
