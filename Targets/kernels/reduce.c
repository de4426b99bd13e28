/* dp_reduce_*, dp_arg_*: see reduce.h. One core accumulates one output element from beginning to end. */
#include "reduce.h"

#include <math.h>

#include "dp_lines.h"

/* Offset of row `row` of the reduced axes but the last. */
static inline int32_t dp_reduce_row(const dp_args *args, const dp_reduce_cst *c, int32_t row) {
  int32_t at = 0;
  for (int32_t d = c->rank + c->reduced - 2; d >= c->rank; d--) {
    at += (row % args->n[d]) * args->t[0].str[d];
    row /= args->n[d];
  }
  return at;
}

static inline int32_t dp_reduce_rows(const dp_args *args, const dp_reduce_cst *c) {
  int32_t rows = 1;
  for (int32_t d = c->rank; d < c->rank + c->reduced - 1; d++) rows *= args->n[d];
  return rows;
}

static inline float dp_reduce_finish_float(const dp_reduce_cst *c, float v) {
  switch (c->finish) {
    case DP_REDUCE_MEAN: return v / (float)c->count;
    case DP_REDUCE_ROOT: return sqrtf(v);
    case DP_REDUCE_LOG: return logf(v);
    default: return v;
  }
}

static inline int64_t dp_reduce_finish_int(const dp_reduce_cst *c, int64_t v) {
  const int32_t n = c->count, half = n >> 1;
  if (c->finish == DP_REDUCE_TRUNCATED) return v / n;
  if (c->finish != DP_REDUCE_MEAN) return v;
  if ((n & (n - 1)) != 0) return (v >= 0 ? v + half : v - half) / n;
  v += half;
  return v >= 0 ? v / n : -((n - 1 - v) / n);
}

static inline void dp_reduce_store(void *y, int32_t at, int32_t bytes, int64_t v) {
  switch (bytes) {
    case 1: ((int8_t *)y)[at] = (int8_t)v; break;
    case 2: ((int16_t *)y)[at] = (int16_t)v; break;
    case 4: ((int32_t *)y)[at] = (int32_t)v; break;
    default: ((int64_t *)y)[at] = v; break;
  }
}

#define DP_STORE_FLOAT ((float *)args->t[1].ptr)[ay] = dp_reduce_finish_float(c, a)
#define DP_STORE_INT dp_reduce_store(args->t[1].ptr, ay, c->out_bytes, dp_reduce_finish_int(c, a))

/* T: element; W: accumulator; START: its first value; UPDATE: statement that takes element v into accumulator a; STORE: of the result. */
#define DP_REDUCE(name, T, W, START, UPDATE, STORE)                                          \
  void name(const dp_args *args, const dp_team *team) {                                      \
    const dp_reduce_cst *c = (const dp_reduce_cst *)args->cst;                               \
    const int32_t last = c->rank + c->reduced - 1, n = args->n[last];                        \
    const int32_t rows = dp_reduce_rows(args, c), step = args->t[0].str[last];               \
    W *acc = (W *)args->acc;                                                                 \
    int32_t begin, end;                                                                      \
    dp_share(team, dp_lines(args, c->rank), &begin, &end);                                   \
    for (int32_t line = begin; line < end; line++) {                                         \
      const T *x = (const T *)args->t[0].ptr + dp_line_at(args, &args->t[0], c->rank, line); \
      const int32_t ay = dp_line_at(args, &args->t[1], c->rank, line);                       \
      W a = args->first ? (START) : acc[ay];                                                 \
      for (int32_t row = 0; row < rows; row++) {                                             \
        const T *p = x + dp_reduce_row(args, c, row);                                        \
        for (int32_t i = 0; i < n; i++) {                                                    \
          const W v = (W)p[i * step];                                                        \
          UPDATE;                                                                            \
        }                                                                                    \
      }                                                                                      \
      if (args->last) {                                                                      \
        STORE;                                                                               \
      } else {                                                                               \
        acc[ay] = a;                                                                         \
      }                                                                                      \
    }                                                                                        \
  }

DP_REDUCE(dp_reduce_sum_f32, float, float, 0.0f, a += v, DP_STORE_FLOAT)
DP_REDUCE(dp_reduce_sumsq_f32, float, float, 0.0f, a += v * v, DP_STORE_FLOAT)
DP_REDUCE(dp_reduce_sumabs_f32, float, float, 0.0f, a += fabsf(v), DP_STORE_FLOAT)
DP_REDUCE(dp_reduce_prod_f32, float, float, 1.0f, a *= v, DP_STORE_FLOAT)
/* NaN stays. */
DP_REDUCE(dp_reduce_max_f32, float, float, -INFINITY, if (v > a || v != v) a = v, DP_STORE_FLOAT)
DP_REDUCE(dp_reduce_min_f32, float, float, INFINITY, if (v < a || v != v) a = v, DP_STORE_FLOAT)

/* Unsigned arithmetic wraps around without undefined behaviour. */
#define DP_REDUCE_COMMON(S, T, WS, W, U, LOWEST, HIGHEST)                                             \
  DP_REDUCE(dp_reduce_sum_##S##_##WS, T, W, 0, a = (W)((U)a + (U)v), DP_STORE_INT)                    \
  DP_REDUCE(dp_reduce_max_##S##_##WS, T, W, LOWEST, if (v > a) a = v, DP_STORE_INT)                   \
  DP_REDUCE(dp_reduce_min_##S##_##WS, T, W, HIGHEST, if (v < a) a = v, DP_STORE_INT)
#define DP_REDUCE_NARROW(S, T) DP_REDUCE_COMMON(S, T, i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
#define DP_REDUCE_WIDE(S, T)                                                                          \
  DP_REDUCE_COMMON(S, T, i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)                                \
  DP_REDUCE(dp_reduce_sumsq_##S##_i64, T, int64_t, 0, a = (int64_t)((uint64_t)a + (uint64_t)v * (uint64_t)v), DP_STORE_INT) \
  DP_REDUCE(dp_reduce_sumabs_##S##_i64, T, int64_t, 0, a = (int64_t)((uint64_t)a + (v < 0 ? 0u - (uint64_t)v : (uint64_t)v)), DP_STORE_INT) \
  DP_REDUCE(dp_reduce_prod_##S##_i64, T, int64_t, 1, a = (int64_t)((uint64_t)a * (uint64_t)v), DP_STORE_INT)

DP_REDUCE_NARROW(i8, int8_t)
DP_REDUCE_NARROW(u8, uint8_t)
DP_REDUCE_NARROW(i16, int16_t)
DP_REDUCE_NARROW(u16, uint16_t)
DP_REDUCE_NARROW(i32, int32_t)
DP_REDUCE_WIDE(i8, int8_t)
DP_REDUCE_WIDE(u8, uint8_t)
DP_REDUCE_WIDE(i16, int16_t)
DP_REDUCE_WIDE(u16, uint16_t)
DP_REDUCE_WIDE(i32, int32_t)
DP_REDUCE_WIDE(u32, uint32_t)
DP_REDUCE_WIDE(i64, int64_t)

#define DP_ARG(S, T)                                                                            \
  void dp_arg_##S(const dp_args *args, const dp_team *team) {                                   \
    const dp_arg_cst *c = (const dp_arg_cst *)args->cst;                                        \
    const int32_t n = args->n[c->rank], step = args->t[0].str[c->rank];                         \
    int32_t begin, end;                                                                         \
    dp_share(team, dp_lines(args, c->rank), &begin, &end);                                      \
    if (n <= 0) return;                                                                         \
    for (int32_t line = begin; line < end; line++) {                                            \
      const T *x = (const T *)args->t[0].ptr + dp_line_at(args, &args->t[0], c->rank, line);    \
      int64_t *y = (int64_t *)args->t[1].ptr + dp_line_at(args, &args->t[1], c->rank, line);    \
      T best = x[0];                                                                            \
      int32_t at = 0;                                                                           \
      for (int32_t i = 1; i < n; i++) {                                                         \
        const T v = x[i * step];                                                                \
        if ((c->smallest ? v < best : v > best) || (c->last && v == best)) {                    \
          best = v;                                                                             \
          at = i;                                                                               \
        }                                                                                       \
      }                                                                                         \
      *y = at;                                                                                  \
    }                                                                                           \
  }
DP_ARG(f32, float)
DP_ARG(i8, int8_t)
DP_ARG(u8, uint8_t)
DP_ARG(i16, int16_t)
DP_ARG(u16, uint16_t)
DP_ARG(i32, int32_t)
DP_ARG(u32, uint32_t)
DP_ARG(i64, int64_t)
