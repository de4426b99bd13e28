/* dp_norm_f32, dp_batch_norm_f32: see norm.h. Two passes for mean and variance, always in the same order. */
#include "norm.h"

#include <math.h>

#include "dp_lines.h"

/* Sum of (x - mean), or of its square, over a line of outer x inner elements. */
static float dp_norm_sum(const float *x, int32_t outer, int32_t inner, int32_t so, int32_t si, float mean, int32_t square) {
  float sum = 0.0f;
  for (int32_t o = 0; o < outer; o++) {
    const float *row = x + o * so;
    float part = 0.0f;
    if (square)
      for (int32_t i = 0; i < inner; i++) part += (row[i * si] - mean) * (row[i * si] - mean);
    else
      for (int32_t i = 0; i < inner; i++) part += row[i * si];
    sum += part;
  }
  return sum;
}

void dp_norm_f32(const dp_args *args, const dp_team *team) {
  static const float one = 1.0f, zero = 0.0f;
  const dp_norm_cst *c = (const dp_norm_cst *)args->cst;
  const dp_tile *tx = &args->t[0], *ty = &args->t[1], *ts = &args->t[2], *tb = &args->t[3];
  const int32_t r = c->rank, outer = args->n[r], inner = args->n[r + 1];
  const int32_t so = c->scaled ? ts->str[r] : 0, si = c->scaled ? ts->str[r + 1] : 0;
  const int32_t bo = c->biased ? tb->str[r] : 0, bi = c->biased ? tb->str[r + 1] : 0;
  const float count = (float)(outer * inner);
  int32_t begin, end;
  dp_share(team, dp_lines(args, r), &begin, &end);
  for (int32_t line = begin; line < end; line++) {
    const float *x = (const float *)tx->ptr + dp_line_at(args, tx, r, line);
    float *y = (float *)ty->ptr + dp_line_at(args, ty, r, line);
    const float *s = c->scaled ? (const float *)ts->ptr + dp_line_at(args, ts, r, line) : &one;
    const float *b = c->biased ? (const float *)tb->ptr + dp_line_at(args, tb, r, line) : &zero;
    const float mean = c->centre ? dp_norm_sum(x, outer, inner, tx->str[r], tx->str[r + 1], 0.0f, 0) / count : 0.0f;
    const float var = dp_norm_sum(x, outer, inner, tx->str[r], tx->str[r + 1], mean, 1) / count;
    const float factor = 1.0f / sqrtf(var + c->epsilon);
    for (int32_t o = 0; o < outer; o++) {
      const float *xr = x + o * tx->str[r], *sr = s + o * so, *br = b + o * bo;
      float *yr = y + o * ty->str[r];
      for (int32_t i = 0; i < inner; i++)
        yr[i * ty->str[r + 1]] = (xr[i * tx->str[r + 1]] - mean) * factor * sr[i * si] + br[i * bi];
    }
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
