/* Gradients of convolutions; the contract is in conv_grad.h.
 *
 * Where neighbours along an axis have chains of the same form, four of them (a line) run side by side and share an operand if they can. The
 * gradient of x with few channels is made in rows instead, several terms for all of a row at once. Functions that need many registers are
 * kept apart: inlined into each other they would take more stack than the cores have. The constant struct is far from the cores, so that
 * loops read no fields of it. */
#include "conv_grad.h"

#include "dp_accumulate.h"
#include "dp_window.h"

#define GRAD_APART __attribute__((noinline))

#define GRAD_LOOPS 4

/* The terms of one chain as a nest of loops, innermost last; loops of one pass are moved outwards, and loops that are one straight line in
 * both operands are joined, so that the innermost is the longest that the order of additions allows. */
typedef struct grad_nest {
  int32_t count[GRAD_LOOPS], a[GRAD_LOOPS], b[GRAD_LOOPS];
  int32_t outermost;
} grad_nest;

static inline void grad_nest_first(grad_nest *nest) {
  for (int i = 0; i < GRAD_LOOPS; i++) {
    nest->count[i] = 1;
    nest->a[i] = nest->b[i] = 0;
  }
  nest->outermost = GRAD_LOOPS;
}

/* Puts a loop around the nest: its passes, and how far a pass moves in the two operands. */
static GRAD_APART void grad_nest_around(grad_nest *nest, int32_t count, int32_t a, int32_t b) {
  int32_t at = nest->outermost;
  if (count == 1) return;
  if (at < GRAD_LOOPS && a == nest->count[at] * nest->a[at] && b == nest->count[at] * nest->b[at]) {
    nest->count[at] *= count;
    return;
  }
  at--;
  nest->count[at] = count;
  nest->a[at] = a;
  nest->b[at] = b;
  nest->outermost = at;
}

/* A line: `count` elements of the result, `step` apart from offset `at`. The chain of the first one starts at a[a_at], b[b_at], that of
 * each further one a_step, b_step behind. If an operand is shared by the line it is a, and a_step is 0. Offsets of empty chains mean
 * nothing. */
typedef struct grad_line {
  int32_t at, step, count;
  const float *a, *b;
  int32_t a_at, b_at, a_step, b_step;
  grad_nest nest;
} grad_line;

/* Walks the nest from offsets ai, bi and does TERM for every term. */
#define GRAD_WALK(NEST, A_AT, B_AT, TERM)                                                                              \
  for (int32_t i0 = (NEST)->count[0], a0 = (A_AT), b0 = (B_AT); i0 > 0; i0--, a0 += (NEST)->a[0], b0 += (NEST)->b[0])  \
    for (int32_t i1 = (NEST)->count[1], a1 = a0, b1 = b0; i1 > 0; i1--, a1 += (NEST)->a[1], b1 += (NEST)->b[1])        \
      for (int32_t i2 = (NEST)->count[2], a2 = a1, b2 = b1; i2 > 0; i2--, a2 += (NEST)->a[2], b2 += (NEST)->b[2])      \
        for (int32_t i3 = (NEST)->count[3], ai = a2, bi = b2; i3 > 0; i3--, ai += (NEST)->a[3], bi += (NEST)->b[3]) TERM

#define GRAD_FOUR_TERMS                            \
  {                                                \
    s0 += a[ai] * b[bi];                           \
    s1 += a[ai + a_step] * b[bi + b_step];         \
    s2 += a[ai + 2 * a_step] * b[bi + 2 * b_step]; \
    s3 += a[ai + 3 * a_step] * b[bi + 3 * b_step]; \
  }

/* Elements i .. i + 3 of a line with those steps, to `to`; from: their sums so far, or NULL. A nest of one loop is worth its own code, as
 * the strides of the others fill the registers. */
#define GRAD_FOUR(NAME, A_STEP, B_STEP)                                                                         \
  static GRAD_APART void NAME(const grad_line *line, int32_t i, const float *from, float *to) {                 \
    const int32_t a_step = (A_STEP), b_step = (B_STEP), step = line->step;                                      \
    const int32_t a_at = line->a_at + i * a_step, b_at = line->b_at + i * b_step;                               \
    const float *a = line->a, *b = line->b;                                                                     \
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;                                                           \
    if (from != NULL) s0 = from[0], s1 = from[step], s2 = from[2 * step], s3 = from[3 * step];                  \
    if (line->nest.outermost >= GRAD_LOOPS - 1) {                                                               \
      const int32_t a_next = line->nest.a[GRAD_LOOPS - 1], b_next = line->nest.b[GRAD_LOOPS - 1];               \
      int32_t ai = a_at, bi = b_at;                                                                             \
      for (int32_t n = line->nest.count[GRAD_LOOPS - 1]; n > 0; n--, ai += a_next, bi += b_next) GRAD_FOUR_TERMS \
    } else {                                                                                                    \
      GRAD_WALK(&line->nest, a_at, b_at, GRAD_FOUR_TERMS)                                                       \
    }                                                                                                           \
    to[0] = s0, to[step] = s1, to[2 * step] = s2, to[3 * step] = s3;                                            \
  }

GRAD_FOUR(grad_four_neighbours, 0, 1)
GRAD_FOUR(grad_four_shared, 0, line->b_step)
GRAD_FOUR(grad_four_apart, line->a_step, line->b_step)

static GRAD_APART void grad_one(const grad_line *line, int32_t i, const float *from, float *to) {
  const float *a = line->a, *b = line->b;
  float sum = from != NULL ? from[0] : 0.0f;
  GRAD_WALK(&line->nest, line->a_at + i * line->a_step, line->b_at + i * line->b_step, sum += a[ai] * b[bi];)
  to[0] = sum;
}

/* Computes a line: whole, or the part of its sums that this tile has. */
static GRAD_APART void grad_write(const dp_args *args, const grad_line *line) {
  float *acc = (float *)args->acc, *to = (args->last ? (float *)args->t[0].ptr : acc) + line->at;
  const float *from = args->first ? NULL : acc + line->at;
  for (int32_t i = 0; i < line->count;) {
    const int32_t width = line->count - i >= 4 ? 4 : 1;
    if (width == 1)
      grad_one(line, i, from, to);
    else if (line->a_step != 0)
      grad_four_apart(line, i, from, to);
    else if (line->b_step != 1)
      grad_four_shared(line, i, from, to);
    else
      grad_four_neighbours(line, i, from, to);
    to += width * line->step;
    if (from != NULL) from += width * line->step;
    i += width;
  }
}

/* ---- the gradient of x ----------------------------------------------------------------------------------------------------------- */

enum { GRAD_H = 0, GRAD_W = 1 };

/* Of one spatial axis (GRAD_H or GRAD_W): the extent of the tile of dx, its first index counted from the padding, and the first index of
 * the tile of dy. */
static inline int32_t grad_x_extent(const dp_args *args, int axis) { return args->n[3 + 2 * axis] * args->n[4 + 2 * axis]; }

static inline int32_t grad_x_first(const dp_args *args, int axis) {
  return args->lo[3 + 2 * axis] * args->n[4 + 2 * axis] + ((const dp_conv_grad_x_cst *)args->cst)->pad[axis];
}

static inline int32_t grad_dy_first(const dp_args *args, int axis) {
  const dp_conv_grad_x_cst *c = (const dp_conv_grad_x_cst *)args->cst;
  return args->lo[3 + 2 * axis] * c->scale[axis] + c->begin[axis] + args->t[1].pad[3 + axis];
}

/* Division is slow, and nearly all divisors here are 1. */
static inline int32_t grad_quotient(int32_t a, int32_t b) { return b == 1 ? a : a / b; }

/* The first tap k with at - k * dilation a multiple of the stride, before any look at sizes; the number of taps if there is none. */
static inline int32_t grad_first_tap(const dp_conv_grad_x_cst *c, int axis, int32_t at) {
  if (c->stride[axis] == 1) return 0;
  for (int32_t k = 0; k < c->period[axis] && k < c->taps[axis]; k++)
    if ((at - k * c->dilation[axis]) % c->stride[axis] == 0) return k;
  return c->taps[axis];
}

/* The taps that one index of dx meets: count of them, a period apart from `first`; `at`: the index of dy that the first one multiplies. */
typedef struct grad_taps {
  int32_t first, count, at;
} grad_taps;

/* Of index `at`, counted from the padding. */
static GRAD_APART void grad_taps_of(grad_taps *t, const dp_conv_grad_x_cst *c, int axis, int32_t at) {
  const int32_t dilation = c->dilation[axis], period = c->period[axis];
  int32_t k = grad_first_tap(c, axis, at);
  const int32_t last = dp_min(c->taps[axis] - 1, grad_quotient(at, dilation));
  const int32_t beyond = at - k * dilation - (c->out[axis] - 1) * c->stride[axis];
  if (beyond > 0) k += grad_quotient(beyond + period * dilation - 1, period * dilation) * period;
  t->first = t->count = t->at = 0;
  if (k > last) return;
  t->first = k;
  t->count = grad_quotient(last - k, period) + 1;
  t->at = grad_quotient(at - k * dilation, c->stride[axis]);
}

/* `run` elements along ic from point[] = (n, g, h, w, ic) of the tile on. */
static GRAD_APART void grad_x_channels(const dp_args *args, const int32_t *point, int32_t run) {
  const dp_conv_grad_x_cst *c = (const dp_conv_grad_x_cst *)args->cst;
  const dp_tile *dx = &args->t[0], *dy = &args->t[1], *w = &args->t[2];
  grad_line line;
  grad_taps t;
  line.at = point[0] * dx->str[0] + point[1] * dx->str[1] + point[4] * dx->str[2] + point[2] * dx->str[3] + point[3] * dx->str[4];
  line.step = dx->str[2];
  line.count = run;
  line.a = (const float *)dy->ptr;
  line.b = (const float *)w->ptr;
  line.a_step = 0;
  line.b_step = w->str[2];
  line.a_at = point[0] * dy->str[0] + point[1] * dy->str[1];
  line.b_at = point[1] * w->str[0] + point[4] * w->str[2];
  grad_nest_first(&line.nest);
  grad_nest_around(&line.nest, c->block, dy->str[2], w->str[1]);
  for (int axis = GRAD_W; axis >= GRAD_H; axis--) {
    grad_taps_of(&t, c, axis, grad_x_first(args, axis) + point[2 + axis]);
    line.a_at += (t.at - grad_dy_first(args, axis)) * dy->str[3 + axis];
    line.b_at += t.first * w->str[3 + axis];
    grad_nest_around(&line.nest, t.count, -c->drop[axis] * dy->str[3 + axis], c->period[axis] * w->str[3 + axis]);
  }
  grad_nest_around(&line.nest, grad_quotient(args->n[7], c->block), c->block * dy->str[2], c->block * w->str[1]);
  grad_write(args, &line);
}

#define GRAD_TERMS 12

/* Terms that a row of n sums gets at once, in their order. Term t adds weight[t] * dy[at[t] + j * dy_step] to sum j if column[t] + j lies
 * in [0, out); for the sums from `begin` to `end` - 1 all of them do. */
typedef struct grad_terms {
  float *to;
  const float *dy;
  int32_t to_step, dy_step, n, out, count, begin, end;
  int32_t at[GRAD_TERMS], column[GRAD_TERMS];
  float weight[GRAD_TERMS];
} grad_terms;

static inline void grad_terms_one(const grad_terms *s, int32_t j) {
  const uint32_t out = (uint32_t)s->out;
  const float *dy = s->dy;
  const int32_t at = j * s->dy_step;
  float *to = s->to + j * s->to_step, v = to[0];
  for (int32_t t = 0; t < s->count; t++)
    if ((uint32_t)(s->column[t] + j) < out) v += s->weight[t] * dy[s->at[t] + at];
  to[0] = v;
}

#define GRAD_TERMS_FOUR(DY_STEP)                        \
  for (int32_t t = 0; t < s->count; t++) {              \
    const float *met = dy + s->at[t];                   \
    const float weight = s->weight[t];                  \
    v0 += weight * met[at];                             \
    v1 += weight * met[at + (DY_STEP)];                 \
    v2 += weight * met[at + 2 * (DY_STEP)];             \
    v3 += weight * met[at + 3 * (DY_STEP)];             \
  }

/* Adds the terms to the last `wanted` of the four sums from j on, which have all of them. */
static inline void grad_terms_four(const grad_terms *s, int32_t j, int32_t wanted) {
  const int32_t step = s->to_step, one = s->dy_step, at = j * one;
  const float *dy = s->dy;
  float *to = s->to + j * step;
  float v0 = to[0], v1 = to[step], v2 = to[2 * step], v3 = to[3 * step];
  if (one == 1) {
    GRAD_TERMS_FOUR(1)
  } else {
    GRAD_TERMS_FOUR(one)
  }
  if (wanted > 3) to[0] = v0;
  if (wanted > 2) to[step] = v1;
  if (wanted > 1) to[2 * step] = v2;
  to[3 * step] = v3;
}

/* Adds the terms to the sums, and forgets them. */
static GRAD_APART void grad_terms_add(grad_terms *s) {
  for (int32_t j = 0; j < s->n;) {
    const int32_t wanted = dp_min(s->end - j, 4);
    if (j < s->begin || wanted < 1 || s->end - s->begin < 4) {
      grad_terms_one(s, j++);
    } else {
      grad_terms_four(s, j + wanted - 4, wanted);
      j += wanted;
    }
  }
  s->count = s->begin = 0;
  s->end = s->n;
}

/* The sums of the row point[] = (n, g, ic, h) of the tile that are a stride apart from `column` on: they meet the same taps. */
static GRAD_APART void grad_x_phase(const dp_args *args, const int32_t *point, grad_terms *s, const grad_taps *th, int32_t column) {
  const dp_conv_grad_x_cst *c = (const dp_conv_grad_x_cst *)args->cst;
  const dp_tile *dy = &args->t[1], *w = &args->t[2];
  const int32_t at = grad_x_first(args, GRAD_W) + column, first = grad_first_tap(c, GRAD_W, at), taps = c->taps[GRAD_W];
  const int32_t period = c->period[GRAD_W], drop = c->drop[GRAD_W], block = c->block;
  const int32_t first_met = grad_quotient(at - first * c->dilation[GRAD_W], c->stride[GRAD_W]); /* column of dy */
  const int32_t dy_step = dy->str[4], dy_channel = dy->str[2], dy_fall = c->drop[GRAD_H] * dy->str[3];
  const int32_t w_step = period * w->str[4], w_channel = w->str[1], w_rise = c->period[GRAD_H] * w->str[3];
  const int32_t from_dy = point[0] * dy->str[0] + point[1] * dy->str[1] + (th->at - grad_dy_first(args, GRAD_H)) * dy->str[3] +
                          (first_met - grad_dy_first(args, GRAD_W)) * dy_step;
  const float *weights = (const float *)w->ptr + point[1] * w->str[0] + point[2] * w->str[2] + th->first * w->str[3];
  for (int32_t part = 0; part < args->n[7]; part += block) {
    for (int32_t ih = 0; ih < th->count; ih++) {
      int32_t met = first_met, dy_at = from_dy + part * dy_channel - ih * dy_fall;
      int32_t w_at = part * w_channel + ih * w_rise + first * w->str[4];
      for (int32_t kw = first; kw < taps; kw += period, met -= drop, dy_at -= drop * dy_step, w_at += w_step) {
        for (int32_t oc = 0; oc < block; oc++) {
          const int32_t t = s->count++;
          s->at[t] = dy_at + oc * dy_channel;
          s->column[t] = met;
          s->weight[t] = weights[w_at + oc * w_channel];
          s->begin = dp_max(s->begin, -met);
          s->end = dp_min(s->end, s->out - met);
          if (t == GRAD_TERMS - 1) grad_terms_add(s);
        }
      }
    }
  }
  if (s->count > 0) grad_terms_add(s);
}

/* `run` elements of a row from point[] = (n, g, ic, h, w) of the tile on: the sums lie in memory. */
static GRAD_APART void grad_x_row(const dp_args *args, const int32_t *point, int32_t run) {
  const dp_conv_grad_x_cst *c = (const dp_conv_grad_x_cst *)args->cst;
  const dp_tile *dx = &args->t[0], *dy = &args->t[1];
  const int32_t stride = c->stride[GRAD_W], step = dx->str[4], at = dp_point_offset(dx, point);
  const float *acc = (const float *)args->acc;
  float *to = (args->last ? (float *)dx->ptr : (float *)args->acc) + at;
  grad_taps th;
  grad_terms s;
  if (args->first)
    for (int32_t i = 0; i < run; i++) to[i * step] = 0.0f;
  else if (args->last)
    for (int32_t i = 0; i < run; i++) to[i * step] = acc[at + i * step];
  grad_taps_of(&th, c, GRAD_H, grad_x_first(args, GRAD_H) + point[3]);
  s.dy = (const float *)dy->ptr;
  s.to_step = stride * step;
  s.dy_step = dy->str[4];
  s.out = c->out[GRAD_W];
  s.count = s.begin = 0;
  for (int32_t i = 0; i < stride && i < run; i++) {
    s.to = to + i * step;
    s.n = s.end = grad_quotient(run - i + stride - 1, stride);
    grad_x_phase(args, point, &s, &th, point[4] + i);
  }
}

/* Where there are channels enough for lines, a core's elements are taken from the flat order (n, g, h, w, ic), else from the order
 * (n, g, ic, h, w) as parts of rows. Each has the same chain either way. */
void dp_conv_grad_x_f32(const dp_args *args, const dp_team *team) {
  const int channels = args->n[2] >= 4;
  const int32_t height = grad_x_extent(args, GRAD_H), width = grad_x_extent(args, GRAD_W);
  const int32_t extents[DP_POINT] = {args->n[0], args->n[1], channels ? height : args->n[2], channels ? width : height,
                                     channels ? args->n[2] : width};
  int32_t at, end, point[DP_POINT];
  dp_share(team, args->n[0] * args->n[1] * args->n[2] * height * width, &at, &end);
  if (at >= end) return;
  dp_point_at(point, extents, at);
  while (at < end) {
    const int32_t run = dp_min(end - at, extents[4] - point[4]);
    if (channels)
      grad_x_channels(args, point, run);
    else
      grad_x_row(args, point, run);
    at += run;
    dp_point_next_row(point, extents);
  }
}

/* ---- the gradient of the weights ------------------------------------------------------------------------------------------------- */

/* A line of `run` weights along axis `along` (0: g, 1: oc, 2: ic) from point[] = (g, oc, ic, kh, kw) of the tile on. */
static GRAD_APART void grad_w_line(const dp_args *args, const int32_t *point, int along, int32_t run) {
  const dp_conv_grad_w_cst *c = (const dp_conv_grad_w_cst *)args->cst;
  const dp_tile *dw = &args->t[0], *dy = &args->t[1], *x = &args->t[2];
  const int swap = along == 1; /* x is shared */
  const dp_tile *a = swap ? x : dy, *b = swap ? dy : x;
  const int32_t kh = point[3] * c->dilation_h, kw = point[4] * c->dilation_w; /* of the tile */
  const int32_t at_h = args->lo[6] * c->stride_h + args->lo[3] * c->dilation_h + kh - c->pad_h;
  const int32_t at_w = args->lo[7] * c->stride_w + args->lo[4] * c->dilation_w + kw - c->pad_w;
  int32_t row, row_end, column, column_end; /* of dy in the tile: those whose tap lies in x */
  dp_window(at_h, c->stride_h, args->n[6], c->height, &row, &row_end);
  dp_window(at_w, c->stride_w, args->n[7], c->width, &column, &column_end);
  const int32_t dy_at = point[0] * dy->str[1] + point[1] * dy->str[2] + row * dy->str[3] + column * dy->str[4];
  const int32_t x_at = point[0] * x->str[1] + point[2] * x->str[2] + (row * c->stride_h + kh - x->pad[3]) * x->str[3] +
                       (column * c->stride_w + kw - x->pad[4]) * x->str[4];
  grad_line line;
  grad_nest_first(&line.nest);
  grad_nest_around(&line.nest, column_end - column, (swap ? c->stride_w : 1) * a->str[4], (swap ? 1 : c->stride_w) * b->str[4]);
  if (c->rows_first) grad_nest_around(&line.nest, args->n[5], a->str[0], b->str[0]);
  grad_nest_around(&line.nest, row_end - row, (swap ? c->stride_h : 1) * a->str[3], (swap ? 1 : c->stride_h) * b->str[3]);
  if (!c->rows_first) grad_nest_around(&line.nest, args->n[5], a->str[0], b->str[0]);
  line.at = dp_point_offset(dw, point);
  line.step = dw->str[along];
  line.count = run;
  line.a = (const float *)a->ptr;
  line.b = (const float *)b->ptr;
  line.a_at = swap ? x_at : dy_at;
  line.b_at = swap ? dy_at : x_at;
  line.a_step = along == 0 ? dy->str[1] : 0;
  line.b_step = along == 0 ? x->str[1] : b->str[2];
  grad_write(args, &line);
}

/* Lines run along the first of ic, oc, g that fills a four. */
void dp_conv_grad_w_f32(const dp_args *args, const dp_team *team) {
  const int32_t *n = args->n;
  const int along = n[2] >= 4 ? 2 : n[1] >= 4 ? 1 : n[0] >= 4 ? 0 : 2;
  const int outer = along == 0 ? 1 : 0, inner = along == 2 ? 1 : 2;
  const int32_t extents[DP_POINT] = {n[outer], n[inner], n[3], n[4], n[along]};
  int32_t at, end, walk[DP_POINT], point[DP_POINT];
  dp_share(team, n[0] * n[1] * n[2] * n[3] * n[4], &at, &end);
  if (at >= end) return;
  dp_point_at(walk, extents, at);
  while (at < end) {
    const int32_t run = dp_min(end - at, extents[4] - walk[4]);
    point[outer] = walk[0];
    point[inner] = walk[1];
    point[3] = walk[2];
    point[4] = walk[3];
    point[along] = walk[4];
    grad_w_line(args, point, along, run);
    at += run;
    dp_point_next_row(walk, extents);
  }
}
