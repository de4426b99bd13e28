/* Matrix products; the contract is in gemm.h. Output points are shared flat, so that one row is work for all cores too. */
#include "gemm.h"

#include "dp_accumulate.h"

/* Offsets and strides of the operands for one row of y. */
typedef struct gemm_row {
  int32_t y, y_step, a, a_k, b, b_k, b_n, depth;
  dp_along c, mul, add, a_zero, b_zero;
} gemm_row;

static inline gemm_row gemm_row_at(const dp_args *args, const int32_t *point) {
  const dp_tile *y = &args->t[0], *a = &args->t[1], *b = &args->t[2];
  gemm_row r;
  r.y = dp_point_offset(y, point);
  r.y_step = y->str[4];
  r.a = point[3] * a->str[3];
  r.b = point[4] * b->str[4];
  for (int d = 0; d < 3; d++) {
    r.a += point[d] * a->str[d];
    r.b += point[d] * b->str[d];
  }
  r.a_k = a->str[4];
  r.b_k = b->str[3];
  r.b_n = b->str[4];
  r.depth = args->n[5];
  r.c = r.mul = r.add = r.a_zero = r.b_zero = dp_along_row(args, -1, point);
  return r;
}

static inline gemm_row gemm_integer_row_at(const dp_args *args, const int32_t *point) {
  const dp_gemm_cst *cst = (const dp_gemm_cst *)args->cst;
  gemm_row r = gemm_row_at(args, point);
  r.c = dp_along_row(args, cst->c, point);
  r.mul = dp_along_row(args, cst->mul, point);
  r.add = dp_along_row(args, cst->add, point);
  r.a_zero = dp_along_row(args, cst->a_zero, point);
  r.b_zero = dp_along_row(args, cst->b_zero, point);
  return r;
}

/* Four columns at once, then the rest one by one: `s[i] += a[k] * b[k][i]` in ascending k. A and B may alias nothing that is written. */
#define GEMM_COLUMNS(A, B, ACC, a, b, r, j, width, s)                                \
  do {                                                                               \
    int32_t ai = (r)->a, bi = (r)->b + (j) * (r)->b_n;                               \
    if ((width) == 4) {                                                              \
      const int32_t n1 = (r)->b_n, n2 = 2 * n1, n3 = 3 * n1;                         \
      ACC s0 = (s)[0], s1 = (s)[1], s2 = (s)[2], s3 = (s)[3];                        \
      for (int32_t k = 0; k < (r)->depth; k++, ai += (r)->a_k, bi += (r)->b_k) {     \
        const ACC v = (a)[ai];                                                       \
        s0 += v * (b)[bi];                                                           \
        s1 += v * (b)[bi + n1];                                                      \
        s2 += v * (b)[bi + n2];                                                      \
        s3 += v * (b)[bi + n3];                                                      \
      }                                                                              \
      (s)[0] = s0, (s)[1] = s1, (s)[2] = s2, (s)[3] = s3;                            \
    } else {                                                                         \
      ACC s0 = (s)[0];                                                               \
      if ((r)->a_k == 1 && (r)->b_k == 1) {                                          \
        for (int32_t k = 0; k < (r)->depth; k++) s0 += (ACC)(a)[ai + k] * (b)[bi + k]; \
      } else {                                                                       \
        for (int32_t k = 0; k < (r)->depth; k++, ai += (r)->a_k, bi += (r)->b_k) s0 += (ACC)(a)[ai] * (b)[bi]; \
      }                                                                              \
      (s)[0] = s0;                                                                   \
    }                                                                                \
  } while (0)

/* One kernel: the walk over the core's points, row by row. FINISH(args, r, j, sum) stores the result of column j. */
#define GEMM_KERNEL(NAME, A, B, ACC, ROW, FINISH)                                    \
  void NAME(const dp_args *args, const dp_team *team) {                              \
    const A *a = (const A *)args->t[1].ptr;                                          \
    const B *b = (const B *)args->t[2].ptr;                                          \
    ACC *acc = (ACC *)args->acc;                                                     \
    const int32_t *n = args->n;                                                      \
    int32_t at, end, point[DP_POINT];                                                \
    dp_share(team, n[0] * n[1] * n[2] * n[3] * n[4], &at, &end);                     \
    if (at >= end) return;                                                           \
    dp_point_at(point, n, at);                                                       \
    while (at < end) {                                                               \
      const gemm_row r = ROW(args, point);                                           \
      const int32_t run = dp_min(end - at, n[4] - point[4]);                         \
      for (int32_t j = 0; j < run;) {                                                \
        const int32_t width = run - j >= 4 ? 4 : 1;                                  \
        ACC s[4] = {0, 0, 0, 0};                                                     \
        if (!args->first)                                                            \
          for (int32_t i = 0; i < width; i++) s[i] = acc[r.y + (j + i) * r.y_step];  \
        GEMM_COLUMNS(A, B, ACC, a, b, &r, j, width, s);                              \
        for (int32_t i = 0; i < width; i++) {                                        \
          if (args->last)                                                            \
            FINISH(args, &r, j + i, s[i]);                                           \
          else                                                                       \
            acc[r.y + (j + i) * r.y_step] = s[i];                                    \
        }                                                                            \
        j += width;                                                                  \
      }                                                                              \
      at += run;                                                                     \
      dp_point_next_row(point, n);                                                   \
    }                                                                                \
  }

static inline void gemm_store(const dp_args *args, const gemm_row *r, int32_t j, int64_t v) {
  const dp_gemm_cst *cst = (const dp_gemm_cst *)args->cst;
  if (cst->requantise) {
    const dp_requant requant = {cst->shift, cst->lo, cst->hi, cst->wide};
    v = dp_requantize(v, dp_along_i32(&r->mul, j), dp_along_i32(&r->add, j), &requant);
  }
  dp_store(args->t[0].ptr, cst->y_type, r->y + j * r->y_step, v);
}

static inline void gemm_finish_i32(const dp_args *args, const gemm_row *r, int32_t j, int32_t sum) {
  const dp_gemm_cst *cst = (const dp_gemm_cst *)args->cst;
  int32_t v = sum * (int32_t)cst->alpha64;
  if (r->c.data != NULL) v += (int32_t)cst->beta64 * (int32_t)dp_along_code(&r->c, j, cst->c_type);
  gemm_store(args, r, j, v);
}

static inline void gemm_finish_f32(const dp_args *args, const gemm_row *r, int32_t j, float sum) {
  const dp_gemm_f32_cst *cst = (const dp_gemm_f32_cst *)args->cst;
  float v = cst->alpha * sum;
  if (r->c.data != NULL) v += cst->beta * dp_along_f32(&r->c, j);
  ((float *)args->t[0].ptr)[r->y + j * r->y_step] = v;
}

static inline gemm_row gemm_f32_row_at(const dp_args *args, const int32_t *point) {
  gemm_row r = gemm_row_at(args, point);
  r.c = dp_along_row(args, ((const dp_gemm_f32_cst *)args->cst)->c, point);
  return r;
}

GEMM_KERNEL(dp_gemm_i8_i8, int8_t, int8_t, int32_t, gemm_integer_row_at, gemm_finish_i32)
GEMM_KERNEL(dp_gemm_i8_u8, int8_t, uint8_t, int32_t, gemm_integer_row_at, gemm_finish_i32)
GEMM_KERNEL(dp_gemm_u8_i8, uint8_t, int8_t, int32_t, gemm_integer_row_at, gemm_finish_i32)
GEMM_KERNEL(dp_gemm_u8_u8, uint8_t, uint8_t, int32_t, gemm_integer_row_at, gemm_finish_i32)
GEMM_KERNEL(dp_gemm_f32, float, float, float, gemm_f32_row_at, gemm_finish_f32)

/* The sum of one point from `sum` on, any types. */
static int64_t gemm_any_sum(const dp_args *args, const gemm_row *r, int32_t j, int64_t sum) {
  const dp_gemm_cst *cst = (const dp_gemm_cst *)args->cst;
  const int64_t a_zero = r->a_zero.data != NULL ? dp_along_code(&r->a_zero, j, cst->a_zero_type) : 0;
  const int64_t b_zero = r->b_zero.data != NULL ? dp_along_code(&r->b_zero, j, cst->b_zero_type) : 0;
  int32_t ai = r->a, bi = r->b + j * r->b_n;
  for (int32_t k = 0; k < r->depth; k++, ai += r->a_k, bi += r->b_k) {
    const int64_t a = dp_wrap_sub(dp_load(args->t[1].ptr, cst->a_type, ai), a_zero);
    const int64_t b = dp_wrap_sub(dp_load(args->t[2].ptr, cst->b_type, bi), b_zero);
    sum = dp_wrap_add(sum, dp_wrap_mul(a, b));
  }
  return sum;
}

void dp_gemm_any(const dp_args *args, const dp_team *team) {
  const dp_gemm_cst *cst = (const dp_gemm_cst *)args->cst;
  int64_t *acc = (int64_t *)args->acc;
  const int32_t *n = args->n;
  int32_t at, end, point[DP_POINT];
  dp_share(team, n[0] * n[1] * n[2] * n[3] * n[4], &at, &end);
  if (at >= end) return;
  dp_point_at(point, n, at);
  while (at < end) {
    const gemm_row r = gemm_integer_row_at(args, point);
    const int32_t run = dp_min(end - at, n[4] - point[4]);
    for (int32_t j = 0; j < run; j++) {
      const int32_t y = r.y + j * r.y_step;
      const int64_t sum = gemm_any_sum(args, &r, j, args->first ? 0 : acc[y]);
      if (!args->last) {
        acc[y] = sum;
        continue;
      }
      int64_t v = dp_wrap_mul(sum, cst->alpha64);
      if (r.c.data != NULL) v = dp_wrap_add(v, dp_wrap_mul(cst->beta64, dp_along_code(&r.c, j, cst->c_type)));
      gemm_store(args, &r, j, v);
    }
    at += run;
    dp_point_next_row(point, n);
  }
}
