/* dp_softmax_f32, dp_softmax_grad_f32: softmax of whole lines and its gradient; see softmax.h. The maximum is subtracted before the
 * exponential, so nothing overflows. */
#include "softmax.h"

#include <math.h>

#include "dp_lines.h"

void dp_softmax_f32(const dp_args *args, const dp_team *team) {
  const dp_softmax_cst *c = (const dp_softmax_cst *)args->cst;
  const dp_tile *tx = &args->t[0], *ty = &args->t[1];
  const int32_t n = args->n[c->rank], sx = tx->str[c->rank], sy = ty->str[c->rank];
  int32_t begin, end;
  dp_share(team, dp_lines(args, c->rank), &begin, &end);
  if (n <= 0) return;
  for (int32_t line = begin; line < end; line++) {
    const float *x = (const float *)tx->ptr + dp_line_at(args, tx, c->rank, line);
    float *y = (float *)ty->ptr + dp_line_at(args, ty, c->rank, line);
    float top = x[0], sum = 0.0f;
    for (int32_t i = 1; i < n; i++)
      if (x[i * sx] > top) top = x[i * sx];
    if (c->log) {
      for (int32_t i = 0; i < n; i++) sum += expf(x[i * sx] - top);
      const float shift = logf(sum);
      for (int32_t i = 0; i < n; i++) y[i * sy] = (x[i * sx] - top) - shift;
      continue;
    }
    for (int32_t i = 0; i < n; i++) {
      const float e = expf(x[i * sx] - top);
      y[i * sy] = e;
      sum += e;
    }
    const float factor = 1.0f / sum;
    for (int32_t i = 0; i < n; i++) y[i * sy] *= factor;
  }
}

void dp_softmax_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_softmax_grad_cst *c = (const dp_softmax_grad_cst *)args->cst;
  const dp_tile *tg = &args->t[0], *tx = &args->t[1], *ty = &args->t[2];
  const int32_t n = args->n[c->rank], sg = tg->str[c->rank], sx = tx->str[c->rank], sy = ty->str[c->rank];
  int32_t begin, end;
  dp_share(team, dp_lines(args, c->rank), &begin, &end);
  for (int32_t line = begin; line < end; line++) {
    const float *dy = (const float *)tg->ptr + dp_line_at(args, tg, c->rank, line);
    const float *y = (const float *)ty->ptr + dp_line_at(args, ty, c->rank, line);
    float *dx = (float *)tx->ptr + dp_line_at(args, tx, c->rank, line);
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i++) sum += dy[i * sg] * y[i * sy];
    for (int32_t i = 0; i < n; i++) dx[i * sx] = y[i * sy] * (dy[i * sg] - sum);
  }
}
