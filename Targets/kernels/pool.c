/* Pooling; the contract is in pool.h. Output points are shared flat. */
#include "pool.h"

#include <math.h>

#include "dp_window.h"

/* One output point: offset of y, offset of the tap (0, 0) of x (which may be padding), the valid taps and their strides. */
typedef struct pool_point {
  int32_t n, c, oh, ow; /* in the tile */
  int32_t at_h, at_w;   /* absolute position of the tile's first tap */
  int32_t y, x, x_kh, x_kw;
  int32_t kh_begin, kh_end, kw_begin, kw_end;
} pool_point;

static inline pool_point pool_point_at(const dp_args *args, int32_t index) {
  const dp_pool_cst *cst = (const dp_pool_cst *)args->cst;
  const dp_tile *y = &args->t[0], *x = &args->t[1];
  const int32_t *n = args->n;
  pool_point p;
  p.ow = index % n[3];
  index /= n[3];
  p.oh = index % n[2];
  index /= n[2];
  p.c = index % n[1];
  p.n = index / n[1];
  p.at_h = (args->lo[2] + p.oh) * cst->stride_h + args->lo[4] * cst->dilation_h - cst->pad_top;
  p.at_w = (args->lo[3] + p.ow) * cst->stride_w + args->lo[5] * cst->dilation_w - cst->pad_left;
  p.y = p.n * y->str[0] + p.c * y->str[1] + p.oh * y->str[2] + p.ow * y->str[3];
  p.x = p.n * x->str[0] + p.c * x->str[1] + (p.oh * cst->stride_h - x->pad[2]) * x->str[2] +
        (p.ow * cst->stride_w - x->pad[3]) * x->str[3];
  p.x_kh = cst->dilation_h * x->str[2];
  p.x_kw = cst->dilation_w * x->str[3];
  dp_window(p.at_h, cst->dilation_h, n[4], cst->height, &p.kh_begin, &p.kh_end);
  dp_window(p.at_w, cst->dilation_w, n[5], cst->width, &p.kw_begin, &p.kw_end);
  return p;
}

static inline int32_t pool_points(const dp_args *args) { return args->n[0] * args->n[1] * args->n[2] * args->n[3]; }

#define POOL_MAX(NAME, T, LOWEST)                                                    \
  void NAME(const dp_args *args, const dp_team *team) {                              \
    const T *x = (const T *)args->t[1].ptr;                                          \
    T *acc = (T *)args->acc, *to = args->last ? (T *)args->t[0].ptr : acc;           \
    int32_t at, end;                                                                 \
    dp_share(team, pool_points(args), &at, &end);                                    \
    for (; at < end; at++) {                                                         \
      const pool_point p = pool_point_at(args, at);                                  \
      T best = args->first ? (T)(LOWEST) : acc[p.y];                                 \
      for (int32_t kh = p.kh_begin; kh < p.kh_end; kh++) {                           \
        int32_t i = p.x + kh * p.x_kh + p.kw_begin * p.x_kw;                         \
        for (int32_t kw = p.kw_begin; kw < p.kw_end; kw++, i += p.x_kw)              \
          if (x[i] > best) best = x[i];                                              \
      }                                                                              \
      to[p.y] = best;                                                                \
    }                                                                                \
  }

POOL_MAX(dp_pool_max_i8, int8_t, INT8_MIN)
POOL_MAX(dp_pool_max_u8, uint8_t, 0)
POOL_MAX(dp_pool_max_i16, int16_t, INT16_MIN)
POOL_MAX(dp_pool_max_u16, uint16_t, 0)
POOL_MAX(dp_pool_max_i32, int32_t, INT32_MIN)
POOL_MAX(dp_pool_max_u32, uint32_t, 0)
POOL_MAX(dp_pool_max_i64, int64_t, INT64_MIN)
POOL_MAX(dp_pool_max_u64, uint64_t, 0)
POOL_MAX(dp_pool_max_f32, float, -INFINITY)

/* The flat index of an element of x, from its absolute position. */
static inline int64_t pool_index(const dp_args *args, const pool_point *p, int32_t h, int32_t w) {
  const dp_pool_cst *cst = (const dp_pool_cst *)args->cst;
  const int64_t plane = (int64_t)(args->lo[0] + p->n) * cst->channels + args->lo[1] + p->c;
  const int64_t inside = cst->column_major ? (int64_t)w * cst->height + h : (int64_t)h * cst->width + w;
  return plane * cst->height * cst->width + inside;
}

#define POOL_ARGMAX(NAME, T)                                                         \
  void NAME(const dp_args *args, const dp_team *team) {                              \
    const dp_pool_cst *cst = (const dp_pool_cst *)args->cst;                         \
    const T *x = (const T *)args->t[1].ptr;                                          \
    const dp_tile *indices = &args->t[2];                                            \
    int32_t at, end;                                                                 \
    dp_share(team, pool_points(args), &at, &end);                                    \
    for (; at < end; at++) {                                                         \
      const pool_point p = pool_point_at(args, at);                                  \
      int32_t best_h = p.kh_begin, best_w = p.kw_begin;                              \
      T best = x[p.x + best_h * p.x_kh + best_w * p.x_kw];                           \
      for (int32_t kh = p.kh_begin; kh < p.kh_end; kh++) {                           \
        int32_t i = p.x + kh * p.x_kh + p.kw_begin * p.x_kw;                         \
        for (int32_t kw = p.kw_begin; kw < p.kw_end; kw++, i += p.x_kw)              \
          if (x[i] > best) best = x[i], best_h = kh, best_w = kw;                    \
      }                                                                              \
      ((T *)args->t[0].ptr)[p.y] = best;                                             \
      ((int64_t *)indices->ptr)[p.n * indices->str[0] + p.c * indices->str[1] + p.oh * indices->str[2] + p.ow * indices->str[3]] = \
          pool_index(args, &p, p.at_h + best_h * cst->dilation_h, p.at_w + best_w * cst->dilation_w); \
    }                                                                                \
  }

POOL_ARGMAX(dp_pool_argmax_i8, int8_t)
POOL_ARGMAX(dp_pool_argmax_u8, uint8_t)
POOL_ARGMAX(dp_pool_argmax_i32, int32_t)
POOL_ARGMAX(dp_pool_argmax_f32, float)

/* How many taps of the whole window count for the average of that output point. */
static inline int32_t pool_divisor(const dp_args *args, const pool_point *p) {
  const dp_pool_cst *cst = (const dp_pool_cst *)args->cst;
  int32_t at_h = p->at_h - args->lo[4] * cst->dilation_h, at_w = p->at_w - args->lo[5] * cst->dilation_w;
  int32_t height = cst->height, width = cst->width;
  if (cst->include_pad) {
    at_h += cst->pad_top;
    at_w += cst->pad_left;
    height += cst->pad_top + cst->pad_bottom;
    width += cst->pad_left + cst->pad_right;
  }
  return dp_window_taps(at_h, cst->dilation_h, cst->kernel_h, height) * dp_window_taps(at_w, cst->dilation_w, cst->kernel_w, width);
}

void dp_pool_average_f32(const dp_args *args, const dp_team *team) {
  const float *x = (const float *)args->t[1].ptr;
  float *y = (float *)args->t[0].ptr, *acc = (float *)args->acc;
  int32_t at, end;
  dp_share(team, pool_points(args), &at, &end);
  for (; at < end; at++) {
    const pool_point p = pool_point_at(args, at);
    float sum = args->first ? 0.0f : acc[p.y];
    for (int32_t kh = p.kh_begin; kh < p.kh_end; kh++) {
      int32_t i = p.x + kh * p.x_kh + p.kw_begin * p.x_kw;
      for (int32_t kw = p.kw_begin; kw < p.kw_end; kw++, i += p.x_kw) sum += x[i];
    }
    if (args->last)
      y[p.y] = sum / (float)pool_divisor(args, &p);
    else
      acc[p.y] = sum;
  }
}
