/* Conversions between element types; see convert.h. */
#include "convert.h"

#include <math.h>

#include "dp_rows.h"
#include "dp_types.h"

DP_INLINE int dp_is_unsigned(int32_t type) { return type == DP_U8 || type == DP_U16 || type == DP_U32 || type == DP_U64 || type == DP_B8; }

DP_INLINE int32_t dp_bits(int32_t type) {
  return type == DP_I64 || type == DP_U64 ? 64 : type == DP_I32 || type == DP_U32 || type == DP_F32 ? 32 : type == DP_I16 || type == DP_U16 ? 16 : 8;
}

/* Truncated and saturated; the bounds are powers of two, exact in float32. */
static int64_t dp_truncate(float x, int32_t type) {
  const int32_t bits = dp_bits(type), is_unsigned = dp_is_unsigned(type);
  const float limit = ldexpf(1.0f, is_unsigned ? bits : bits - 1);
  const uint64_t highest = ((uint64_t)1 << (bits - 1)) - 1 + (is_unsigned ? (uint64_t)1 << (bits - 1) : 0);
  if (x != x) return 0;
  if (x >= limit) return (int64_t)highest;
  if (is_unsigned) return x <= 0.0f ? 0 : (int64_t)(uint64_t)x;
  if (x < -limit) return -(int64_t)highest - 1;
  return (int64_t)x;
}

DP_INLINE float dp_to_float(const void *p, int32_t type, int32_t i) {
  if (type == DP_F32) return ((const float *)p)[i];
  if (type == DP_U64) return (float)((const dp_u64 *)p)[i];
  /* Up to 32 bits the conversion needs no 64-bit arithmetic. */
  if (dp_bits(type) < 32 || type == DP_I32) return (float)(int32_t)dp_load(p, type, i);
  return (float)dp_load(p, type, i);
}

/* tx, ty: the types, constant where the loop has its own code. */
DP_INLINE void rows_cast(const dp_args *args, const dp_team *team, int32_t tx, int32_t ty) {
  const dp_convert_cst *c = (const dp_convert_cst *)args->cst;
  const void *x = args->t[0].ptr;
  void *y = args->t[1].ptr;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    int32_t ix = r.at[0], iy = r.at[1];
    for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iy += r.step[1]) {
      if (ty == DP_F32)
        ((float *)y)[iy] = dp_to_float(x, tx, ix);
      else if (ty == DP_B8)
        ((uint8_t *)y)[iy] = tx == DP_F32 ? ((const float *)x)[ix] != 0.0f : dp_load(x, tx, ix) != 0;
      else
        dp_store(y, ty, iy, tx == DP_F32 ? dp_truncate(((const float *)x)[ix], ty) : dp_load(x, tx, ix));
    }
  }
}

void dp_cast(const dp_args *args, const dp_team *team) {
  const dp_convert_cst *c = (const dp_convert_cst *)args->cst;
  const int32_t tx = c->type_x, ty = c->type_y;
  if (tx == DP_I8 && ty == DP_F32) rows_cast(args, team, DP_I8, DP_F32);
  else if (tx == DP_U8 && ty == DP_F32) rows_cast(args, team, DP_U8, DP_F32);
  else if (tx == DP_I32 && ty == DP_F32) rows_cast(args, team, DP_I32, DP_F32);
  else rows_cast(args, team, tx, ty);
}

void dp_quant_f32(const dp_args *args, const dp_team *team) {
  const dp_convert_cst *c = (const dp_convert_cst *)args->cst;
  const float *x = (const float *)args->t[0].ptr, scale = c->scale, zero = c->zero;
  const float lo = (float)c->lo, hi = (float)c->hi;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    int32_t ix = r.at[0], iy = r.at[1];
    for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iy += r.step[1]) {
      const float scaled = x[ix] * scale;
      const float t = roundf(scaled + zero);
      /* The bounds may round up in float32: compare, then take the exact integer. */
      const int32_t q = t >= hi ? c->hi : t > lo ? (int32_t)t : c->lo;
      dp_store(args->t[1].ptr, c->type_y, iy, q);
    }
  }
}

void dp_dequant_f32(const dp_args *args, const dp_team *team) {
  const dp_convert_cst *c = (const dp_convert_cst *)args->cst;
  float *y = (float *)args->t[1].ptr;
  const float scale = c->scale, zero = c->zero;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    int32_t ix = r.at[0], iy = r.at[1];
    for (int32_t i = 0; i < r.run; i++, ix += r.step[0], iy += r.step[1])
      y[iy] = (dp_to_float(args->t[0].ptr, c->type_x, ix) - zero) * scale;
  }
}
