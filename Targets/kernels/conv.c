/* Convolutions; the contract is in conv.h. Output points are shared flat; a core walks its points row by row. */
#include "conv.h"

#include "dp_accumulate.h"
#include "dp_window.h"

/* A nest of three loops over the taps of one output point, innermost last; loops of one pass are moved outwards, and loops that are one
 * straight line in both operands are joined, so that the innermost is the longest that the order of additions allows. */
typedef struct conv_nest {
  int32_t count[3], x[3], w[3];
} conv_nest;

/* One row of y: offsets, and the taps kh that lie inside the input. */
typedef struct conv_row {
  int32_t y, y_step;
  int32_t x, w;           /* at ic = 0, the first valid kh, kw = 0, of the point ow = 0 */
  int32_t kh;             /* valid rows of the window */
  int32_t at_w;           /* absolute column of kw = 0 of the point ow = 0 of the tile */
  int32_t x_kw, x_ow, w_kw;
  dp_along bias, mul, add;
} conv_row;

static inline void conv_nest_add(conv_nest *nest, int *loops, int32_t count, int32_t x, int32_t w) {
  if (count == 1) return;
  if (*loops > 0) {
    const int last = *loops - 1;
    if (nest->x[last] == count * x && nest->w[last] == count * w) {
      nest->count[last] *= count;
      nest->x[last] = x;
      nest->w[last] = w;
      return;
    }
  }
  nest->count[*loops] = count;
  nest->x[*loops] = x;
  nest->w[*loops] = w;
  (*loops)++;
}

static inline conv_nest conv_nest_of(const dp_args *args, const conv_row *row, int32_t kw) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  const dp_tile *x = &args->t[1], *w = &args->t[2];
  conv_nest found, nest;
  int loops = 0;
  conv_nest_add(&found, &loops, args->n[5], x->str[2], w->str[2]);
  conv_nest_add(&found, &loops, row->kh, cst->dilation_h * x->str[3], w->str[3]);
  conv_nest_add(&found, &loops, kw, row->x_kw, row->w_kw);
  for (int i = 0; i < 3; i++) {
    const int from = i - (3 - loops);
    nest.count[i] = from >= 0 ? found.count[from] : 1;
    nest.x[i] = from >= 0 ? found.x[from] : 0;
    nest.w[i] = from >= 0 ? found.w[from] : 0;
  }
  return nest;
}

static inline conv_row conv_row_at(const dp_args *args, const int32_t *point) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  const dp_tile *x = &args->t[1], *w = &args->t[2];
  int32_t begin, end;
  conv_row r;
  r.y = dp_point_offset(&args->t[0], point);
  r.y_step = args->t[0].str[4];
  dp_window((args->lo[3] + point[3]) * cst->stride_h + args->lo[6] * cst->dilation_h - cst->pad_h, cst->dilation_h, args->n[6], cst->height,
            &begin, &end);
  r.kh = end - begin;
  r.at_w = args->lo[4] * cst->stride_w + args->lo[7] * cst->dilation_w - cst->pad_w;
  r.x = point[0] * x->str[0] + point[1] * x->str[1] +
        (point[3] * cst->stride_h + begin * cst->dilation_h - x->pad[3]) * x->str[3] - x->pad[4] * x->str[4];
  r.w = point[1] * w->str[0] + point[2] * w->str[1] + begin * w->str[3];
  r.x_kw = cst->dilation_w * x->str[4];
  r.x_ow = cst->stride_w * x->str[4];
  r.w_kw = w->str[4];
  r.bias = dp_along_row(args, cst->bias, point);
  r.mul = dp_along_row(args, cst->mul, point);
  r.add = dp_along_row(args, cst->add, point);
  return r;
}

/* Whether the points ow .. ow + 3 of the tile have all taps kw inside the input. */
static inline int conv_four_inside(const dp_args *args, const conv_row *r, int32_t ow) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  const int32_t first = r->at_w + ow * cst->stride_w;
  return first >= 0 && first + 3 * cst->stride_w + (args->n[7] - 1) * cst->dilation_w < cst->width;
}

#define CONV_ONE(ACC, nest, xo, wo, sum)                                                              \
  for (int32_t i0 = 0; i0 < (nest).count[0]; i0++) {                                                  \
    for (int32_t i1 = 0; i1 < (nest).count[1]; i1++) {                                                \
      int32_t xi = (xo) + i0 * (nest).x[0] + i1 * (nest).x[1];                                        \
      int32_t wi = (wo) + i0 * (nest).w[0] + i1 * (nest).w[1];                                        \
      for (int32_t i2 = (nest).count[2]; i2 > 0; i2--, xi += (nest).x[2], wi += (nest).w[2])          \
        sum += (ACC)x[xi] * w[wi];                                                                    \
    }                                                                                                 \
  }

/* Four neighbours in a row share the weights; each has its own chain of additions. */
#define CONV_FOUR(ACC, nest, xo, wo, step, s)                                                         \
  for (int32_t i0 = 0; i0 < (nest).count[0]; i0++) {                                                  \
    for (int32_t i1 = 0; i1 < (nest).count[1]; i1++) {                                                \
      int32_t xi = (xo) + i0 * (nest).x[0] + i1 * (nest).x[1];                                        \
      int32_t wi = (wo) + i0 * (nest).w[0] + i1 * (nest).w[1];                                        \
      ACC s0 = (s)[0], s1 = (s)[1], s2 = (s)[2], s3 = (s)[3];                                         \
      for (int32_t i2 = (nest).count[2]; i2 > 0; i2--, xi += (nest).x[2], wi += (nest).w[2]) {        \
        const ACC v = w[wi];                                                                          \
        s0 += v * x[xi];                                                                              \
        s1 += v * x[xi + (step)];                                                                     \
        s2 += v * x[xi + 2 * (step)];                                                                 \
        s3 += v * x[xi + 3 * (step)];                                                                 \
      }                                                                                               \
      (s)[0] = s0, (s)[1] = s1, (s)[2] = s2, (s)[3] = s3;                                             \
    }                                                                                                 \
  }

/* Sums of one row: points ow .. ow + run of the tile; FINISH(args, r, ow, sum) stores one. */
#define CONV_KERNEL(NAME, X, W, ACC, FINISH)                                                          \
  static void NAME##_row(const dp_args *args, const conv_row *r, int32_t ow, int32_t run) {           \
    const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;                                          \
    const X *x = (const X *)args->t[1].ptr;                                                           \
    const W *w = (const W *)args->t[2].ptr;                                                           \
    ACC *acc = (ACC *)args->acc;                                                                      \
    const conv_nest whole = conv_nest_of(args, r, args->n[7]);                                             \
    for (int32_t end = ow + run; ow < end;) {                                                         \
      ACC s[4] = {0, 0, 0, 0};                                                                        \
      const int32_t width = end - ow >= 4 && conv_four_inside(args, r, ow) ? 4 : 1;                        \
      if (!args->first)                                                                               \
        for (int32_t i = 0; i < width; i++) s[i] = acc[r->y + (ow + i) * r->y_step];                  \
      if (width == 4) {                                                                               \
        CONV_FOUR(ACC, whole, r->x + ow * r->x_ow, r->w, r->x_ow, s)                                  \
      } else {                                                                                        \
        int32_t begin, stop;                                                                          \
        ACC sum = s[0];                                                                               \
        dp_window(r->at_w + ow * cst->stride_w, cst->dilation_w, args->n[7], cst->width, &begin, &stop); \
        if (r->kh > 0 && stop > begin) {                                                              \
          const conv_nest part = conv_nest_of(args, r, stop - begin);                                      \
          CONV_ONE(ACC, part, r->x + ow * r->x_ow + begin * r->x_kw, r->w + begin * r->w_kw, sum)       \
        }                                                                                             \
        s[0] = sum;                                                                                   \
      }                                                                                               \
      for (int32_t i = 0; i < width; i++, ow++) {                                                     \
        if (args->last)                                                                               \
          FINISH(args, r, ow, s[i]);                                                                  \
        else                                                                                          \
          acc[r->y + ow * r->y_step] = s[i];                                                          \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  void NAME(const dp_args *args, const dp_team *team) { conv_points(args, team, NAME##_row); }

typedef void (*conv_row_kernel)(const dp_args *args, const conv_row *r, int32_t ow, int32_t run);

/* The walk over the core's points. Offsets in a row are those of ow = 0, so that positions are counted from the tile's edge. */
static inline void conv_points(const dp_args *args, const dp_team *team, conv_row_kernel row_kernel) {
  const int32_t *n = args->n;
  int32_t at, end, point[DP_POINT];
  dp_share(team, n[0] * n[1] * n[2] * n[3] * n[4], &at, &end);
  if (at >= end) return;
  dp_point_at(point, n, at);
  while (at < end) {
    const int32_t ow = point[4], run = dp_min(end - at, n[4] - ow);
    point[4] = 0;
    const conv_row r = conv_row_at(args, point);
    row_kernel(args, &r, ow, run);
    at += run;
    dp_point_next_row(point, n);
  }
}

static inline void conv_store(const dp_args *args, const conv_row *r, int32_t ow, int64_t v) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  if (cst->requantise) {
    const dp_requant requant = {cst->shift, cst->lo, cst->hi, cst->wide};
    v = dp_requantize(v, dp_along_i32(&r->mul, ow), dp_along_i32(&r->add, ow), &requant);
  }
  dp_store(args->t[0].ptr, cst->y_type, r->y + ow * r->y_step, v);
}

static inline void conv_finish_i32(const dp_args *args, const conv_row *r, int32_t ow, int32_t sum) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  if (r->bias.data != NULL) sum += (int32_t)dp_along_code(&r->bias, ow, cst->bias_type);
  conv_store(args, r, ow, sum);
}

static inline void conv_finish_f32(const dp_args *args, const conv_row *r, int32_t ow, float sum) {
  if (r->bias.data != NULL) sum += dp_along_f32(&r->bias, ow);
  ((float *)args->t[0].ptr)[r->y + ow * r->y_step] = sum;
}

CONV_KERNEL(dp_conv_i8_i8, int8_t, int8_t, int32_t, conv_finish_i32)
CONV_KERNEL(dp_conv_i8_u8, int8_t, uint8_t, int32_t, conv_finish_i32)
CONV_KERNEL(dp_conv_u8_i8, uint8_t, int8_t, int32_t, conv_finish_i32)
CONV_KERNEL(dp_conv_u8_u8, uint8_t, uint8_t, int32_t, conv_finish_i32)
CONV_KERNEL(dp_conv_f32, float, float, float, conv_finish_f32)

static int64_t conv_any_sum(const dp_args *args, const conv_nest *nest, int32_t xo, int32_t wo, int64_t sum) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  for (int32_t i0 = 0; i0 < nest->count[0]; i0++)
    for (int32_t i1 = 0; i1 < nest->count[1]; i1++)
      for (int32_t i2 = 0; i2 < nest->count[2]; i2++) {
        const int64_t x = dp_load(args->t[1].ptr, cst->x_type, xo + i0 * nest->x[0] + i1 * nest->x[1] + i2 * nest->x[2]);
        const int64_t w = dp_load(args->t[2].ptr, cst->w_type, wo + i0 * nest->w[0] + i1 * nest->w[1] + i2 * nest->w[2]);
        sum = dp_wrap_add(sum, dp_wrap_mul(x, w));
      }
  return sum;
}

static void conv_any_row(const dp_args *args, const conv_row *r, int32_t ow, int32_t run) {
  const dp_conv_cst *cst = (const dp_conv_cst *)args->cst;
  int64_t *acc = (int64_t *)args->acc;
  for (const int32_t end = ow + run; ow < end; ow++) {
    const int32_t y = r->y + ow * r->y_step;
    int64_t sum = args->first ? 0 : acc[y];
    int32_t begin, stop;
    dp_window(r->at_w + ow * cst->stride_w, cst->dilation_w, args->n[7], cst->width, &begin, &stop);
    if (r->kh > 0 && stop > begin) {
      const conv_nest nest = conv_nest_of(args, r, stop - begin);
      sum = conv_any_sum(args, &nest, r->x + ow * r->x_ow + begin * r->x_kw, r->w + begin * r->w_kw, sum);
    }
    if (!args->last) {
      acc[y] = sum;
      continue;
    }
    if (r->bias.data != NULL) sum = dp_wrap_add(sum, dp_along_code(&r->bias, ow, cst->bias_type));
    conv_store(args, r, ow, sum);
  }
}

void dp_conv_any(const dp_args *args, const dp_team *team) { conv_points(args, team, conv_any_row); }
