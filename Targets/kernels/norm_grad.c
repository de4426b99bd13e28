/* dp_norm_grad_f32, dp_norm_scale_grad_f32: see norm_grad.h. Every sum is one chain in the order of its axes. */
#include "norm_grad.h"

#include "dp_lines.h"
#include "dp_norm_line.h"

/* A line of one operand: its first element and its strides along the outer and the inner axis. */
typedef struct dp_norm_run {
  const float *first;
  int32_t so, si;
} dp_norm_run;

static inline dp_norm_run dp_norm_run_of(const dp_args *args, int32_t operand, int32_t rank, int32_t line) {
  const dp_tile *t = &args->t[operand];
  dp_norm_run run;
  run.first = (const float *)t->ptr + dp_line_at(args, t, rank, line);
  run.so = t->str[rank];
  run.si = t->str[rank + 1];
  return run;
}

void dp_norm_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_norm_grad_cst *c = (const dp_norm_grad_cst *)args->cst;
  const int32_t r = c->rank, outer = args->n[r], inner = args->n[r + 1];
  const dp_tile *tx = &args->t[1];
  const float count = (float)(outer * inner);
  int32_t begin, end;
  dp_share(team, dp_lines(args, r), &begin, &end);
  for (int32_t line = begin; line < end; line++) {
    const dp_norm_run dy = dp_norm_run_of(args, 0, r, line), x = dp_norm_run_of(args, 2, r, line), s = dp_norm_run_of(args, 3, r, line);
    float *dx = (float *)tx->ptr + dp_line_at(args, tx, r, line);
    dp_norm_line stats;
    if (c->given) {
      stats.mean = *dp_norm_run_of(args, 4, r, line).first;
      stats.inverse = *dp_norm_run_of(args, 5, r, line).first;
    } else {
      stats = dp_norm_line_of(x.first, outer, inner, x.so, x.si, 1, c->epsilon);
    }
    float sum = 0.0f, product = 0.0f;
    for (int32_t o = 0; o < outer; o++) {
      const float *pg = dy.first + o * dy.so, *px = x.first + o * x.so, *ps = s.first + o * s.so;
      for (int32_t i = 0; i < inner; i++) {
        const float g = pg[i * dy.si] * ps[i * s.si];
        sum += g;
        product += g * ((px[i * x.si] - stats.mean) * stats.inverse);
      }
    }
    sum /= count;
    product /= count;
    for (int32_t o = 0; o < outer; o++) {
      const float *pg = dy.first + o * dy.so, *px = x.first + o * x.so, *ps = s.first + o * s.so;
      float *pd = dx + o * tx->str[r];
      for (int32_t i = 0; i < inner; i++) {
        const float g = pg[i * dy.si] * ps[i * s.si];
        pd[i * tx->str[r + 1]] = stats.inverse * (g - sum - (px[i * x.si] - stats.mean) * stats.inverse * product);
      }
    }
  }
}

/* Offset of row `row` of the reduced axes but the last, in operand `t`. */
static inline int32_t dp_norm_row(const dp_args *args, const dp_norm_scale_grad_cst *c, const dp_tile *t, int32_t row) {
  int32_t at = 0;
  for (int32_t d = c->rank + c->reduced - 2; d >= c->rank; d--) {
    at += (row % args->n[d]) * t->str[d];
    row /= args->n[d];
  }
  return at;
}

void dp_norm_scale_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_norm_scale_grad_cst *c = (const dp_norm_scale_grad_cst *)args->cst;
  const int32_t last = c->rank + c->reduced - 1, n = args->n[last];
  float *acc = (float *)args->acc;
  int32_t rows = 1, begin, end;
  for (int32_t d = c->rank; d < last; d++) rows *= args->n[d];
  dp_share(team, dp_lines(args, c->rank), &begin, &end);
  for (int32_t place = begin; place < end; place++) {
    const int32_t at = dp_line_at(args, &args->t[4], c->rank, place);
    float sum = args->first ? 0.0f : acc[at];
    for (int32_t row = 0; row < rows; row++) {
      const float *p[4];
      int32_t step[4];
      for (int32_t o = 0; o < 4; o++) {
        const dp_tile *t = &args->t[o];
        p[o] = (const float *)t->ptr + dp_line_at(args, t, c->rank, place) + dp_norm_row(args, c, t, row);
        step[o] = t->str[last];
      }
      for (int32_t i = 0; i < n; i++) sum += p[0][i * step[0]] * ((p[1][i * step[1]] - p[2][i * step[2]]) * p[3][i * step[3]]);
    }
    if (args->last) {
      ((float *)args->t[4].ptr)[at] = sum;
    } else {
      acc[at] = sum;
    }
  }
}
