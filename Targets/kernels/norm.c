/* dp_norm_f32, dp_norm_stats_f32, dp_batch_norm_f32: see norm.h. */
#include "norm.h"

#include <math.h>

#include "dp_lines.h"
#include "dp_norm_line.h"

void dp_norm_f32(const dp_args *args, const dp_team *team) {
  static const float one = 1.0f, zero = 0.0f;
  const dp_norm_cst *c = (const dp_norm_cst *)args->cst;
  const dp_tile *tx = &args->t[0], *ty = &args->t[1], *ts = &args->t[2], *tb = &args->t[3];
  const int32_t r = c->rank, outer = args->n[r], inner = args->n[r + 1];
  const int32_t so = c->scaled ? ts->str[r] : 0, si = c->scaled ? ts->str[r + 1] : 0;
  const int32_t bo = c->biased ? tb->str[r] : 0, bi = c->biased ? tb->str[r + 1] : 0;
  const dp_tile *tm = &args->t[2 + c->scaled + c->biased], *ti = tm + 1;
  int32_t begin, end;
  dp_share(team, dp_lines(args, r), &begin, &end);
  for (int32_t line = begin; line < end; line++) {
    const float *x = (const float *)tx->ptr + dp_line_at(args, tx, r, line);
    float *y = (float *)ty->ptr + dp_line_at(args, ty, r, line);
    const float *s = c->scaled ? (const float *)ts->ptr + dp_line_at(args, ts, r, line) : &one;
    const float *b = c->biased ? (const float *)tb->ptr + dp_line_at(args, tb, r, line) : &zero;
    dp_norm_line stats;
    if (c->given) {
      stats.mean = ((const float *)tm->ptr)[dp_line_at(args, tm, r, line)];
      stats.inverse = ((const float *)ti->ptr)[dp_line_at(args, ti, r, line)];
    } else {
      stats = dp_norm_line_of(x, outer, inner, tx->str[r], tx->str[r + 1], c->centre, c->epsilon);
    }
    for (int32_t o = 0; o < outer; o++) {
      const float *xr = x + o * tx->str[r], *sr = s + o * so, *br = b + o * bo;
      float *yr = y + o * ty->str[r];
      for (int32_t i = 0; i < inner; i++)
        yr[i * ty->str[r + 1]] = (xr[i * tx->str[r + 1]] - stats.mean) * stats.inverse * sr[i * si] + br[i * bi];
    }
  }
}

void dp_norm_stats_f32(const dp_args *args, const dp_team *team) {
  const dp_norm_stats_cst *c = (const dp_norm_stats_cst *)args->cst;
  const dp_tile *tx = &args->t[0];
  const int32_t r = c->rank;
  int32_t begin, end;
  dp_share(team, dp_lines(args, r), &begin, &end);
  for (int32_t line = begin; line < end; line++) {
    const float *x = (const float *)tx->ptr + dp_line_at(args, tx, r, line);
    const dp_norm_line stats = dp_norm_line_of(x, args->n[r], args->n[r + 1], tx->str[r], tx->str[r + 1], 1, c->epsilon);
    ((float *)args->t[1].ptr)[dp_line_at(args, &args->t[1], r, line)] = stats.mean;
    ((float *)args->t[2].ptr)[dp_line_at(args, &args->t[2], r, line)] = stats.inverse;
  }
}

void dp_batch_norm_f32(const dp_args *args, const dp_team *team) {
  const dp_batch_norm_cst *c = (const dp_batch_norm_cst *)args->cst;
  const int32_t r = c->rank, n = args->n[r];
  int32_t begin, end;
  dp_share(team, dp_lines(args, r), &begin, &end);
  for (int32_t line = begin; line < end; line++) {
    const float *in[5];
    int32_t step[5];
    for (int32_t o = 0; o < 5; o++) {
      in[o] = (const float *)args->t[o].ptr + dp_line_at(args, &args->t[o], r, line);
      step[o] = args->t[o].str[r];
    }
    float *y = (float *)args->t[5].ptr + dp_line_at(args, &args->t[5], r, line);
    const int32_t sy = args->t[5].str[r];
    const int32_t fixed = step[1] == 0 && step[4] == 0;
    float factor = fixed && n > 0 ? in[1][0] / sqrtf(in[4][0] + c->epsilon) : 0.0f;
    for (int32_t i = 0; i < n; i++) {
      if (!fixed) factor = in[1][i * step[1]] / sqrtf(in[4][i * step[4]] + c->epsilon);
      y[i * sy] = (in[0][i * step[0]] - in[3][i * step[3]]) * factor + in[2][i * step[2]];
    }
  }
}
