/* Losses and their gradients; the contract is in loss.h. */
#include "loss.h"

#include <math.h>

#include "dp_rows.h"
#include "dp_types.h"

/* The label at (n, d) of the tile. */
static inline int64_t loss_label(const dp_tile *t, int32_t type, int32_t n, int32_t d) {
  return dp_load(t->ptr, type, n * t->str[0] + d * t->str[1]);
}

/* What label (n, d) adds to sum `lane`. The weights are operand 3. */
static inline float nll_term(const dp_args *args, int32_t lane, int32_t n, int32_t d) {
  const dp_nll_cst *c = (const dp_nll_cst *)args->cst;
  const dp_tile *tp = &args->t[2], *tw = &args->t[3];
  const int64_t label = loss_label(&args->t[1], c->type, n, d);
  if (c->ignores && label == c->ignored64) return 0.0f;
  if (label < 0 || label >= c->classes) return NAN;
  const float weight = c->weighted ? ((const float *)tw->ptr)[(int32_t)label * tw->str[0]] : 1.0f;
  if (lane != 0) return weight;
  return -weight * ((const float *)tp->ptr)[n * tp->str[0] + (int32_t)label * tp->str[1] + d * tp->str[2]];
}

void dp_nll_each_f32(const dp_args *args, const dp_team *team) {
  const dp_tile *ty = &args->t[0];
  int32_t at, end;
  dp_share(team, args->n[0] * args->n[1], &at, &end);
  for (; at < end; at++) {
    const int32_t n = at / args->n[1], d = at % args->n[1];
    ((float *)ty->ptr)[n * ty->str[0] + d * ty->str[1]] = nll_term(args, 0, n, d);
  }
}

void dp_nll_sum_f32(const dp_args *args, const dp_team *team) {
  const dp_nll_cst *c = (const dp_nll_cst *)args->cst;
  const dp_tile *ty = &args->t[0];
  int32_t k, end;
  dp_share(team, args->n[0], &k, &end);
  for (; k < end; k++) {
    const int32_t lane = c->lane + args->lo[0] + k, at = k * ty->str[0];
    float sum = args->first ? 0.0f : ((const float *)args->acc)[at];
    for (int32_t n = 0; n < args->n[1]; n++)
      for (int32_t d = 0; d < args->n[2]; d++) sum += nll_term(args, lane, n, d);
    if (args->last)
      ((float *)ty->ptr)[at] = lane == 0 ? sum / c->count : sum;
    else
      ((float *)args->acc)[at] = sum;
  }
}

void dp_cross_entropy_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_cross_entropy_grad_cst *c = (const dp_cross_entropy_grad_cst *)args->cst;
  const dp_tile *tp = &args->t[0], *tdx = &args->t[2], *tg = &args->t[3];
  const dp_tile *tw = tg + c->scaled, *tt = tw + c->weighted;
  const int32_t ds = args->n[2];
  const float total = c->totalled ? ((const float *)tt->ptr)[0] : 1.0f;
  int32_t at, end;
  dp_share(team, args->n[0] * args->n[1] * ds, &at, &end);
  for (; at < end; at++) {
    const int32_t d = at % ds, k = at / ds % args->n[1], n = at / ds / args->n[1];
    const int64_t label = loss_label(&args->t[1], c->type, n, d);
    float *dx = (float *)tdx->ptr + n * tdx->str[0] + k * tdx->str[1] + d * tdx->str[2];
    const float p = expf(((const float *)tp->ptr)[n * tp->str[0] + k * tp->str[1] + d * tp->str[2]]);
    if (c->ignores && label == c->ignored64) {
      *dx = 0.0f;
      continue;
    }
    if (label < 0 || label >= c->classes) {
      *dx = NAN;
      continue;
    }
    float g = label == args->lo[1] + k ? p - 1.0f : p;
    if (c->scaled) g *= ((const float *)tg->ptr)[n * tg->str[0] + d * tg->str[1]];
    if (c->weighted) g *= ((const float *)tw->ptr)[(int32_t)label * tw->str[0]];
    if (c->totalled) g /= total;
    *dx = g / c->count;
  }
}

void dp_mse_f32(const dp_args *args, const dp_team *team) {
  const dp_mse_cst *c = (const dp_mse_cst *)args->cst;
  const float *a = (const float *)args->t[1].ptr, *b = (const float *)args->t[2].ptr;
  const int32_t sa = args->t[1].str[0], sb = args->t[2].str[0];
  if (dp_team_rank(team) != 0) return;
  float sum = args->first ? 0.0f : ((const float *)args->acc)[0];
  for (int32_t i = 0; i < args->n[0]; i++) {
    const float d = a[i * sa] - b[i * sb], square = d * d;
    sum += square;
  }
  if (args->last)
    ((float *)args->t[0].ptr)[0] = sum / c->count;
  else
    ((float *)args->acc)[0] = sum;
}

void dp_mse_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_mse_cst *c = (const dp_mse_cst *)args->cst;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 3); r.run > 0; dp_rows_next(&r)) {
    const float *a = (const float *)args->t[0].ptr + r.at[0], *b = (const float *)args->t[1].ptr + r.at[1];
    float *y = (float *)args->t[2].ptr + r.at[2];
    for (int32_t i = 0; i < r.run; i++) y[i * r.step[2]] = 2.0f * (a[i * r.step[0]] - b[i * r.step[1]]) / c->count;
  }
}
