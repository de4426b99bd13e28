/* dp_gradient_accumulate_f32, dp_sgd_f32: see training_state.h. */
#include "training_state.h"

#include "dp_rows.h"

void dp_gradient_accumulate_f32(const dp_args *args, const dp_team *team) {
  const dp_gradient_accumulate_cst *c = (const dp_gradient_accumulate_cst *)args->cst;
  const int32_t last = c->flagged ? 2 : 1;
  const int32_t reset = c->flagged && ((const uint8_t *)args->t[1].ptr)[0] != 0;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, last + 1); r.run > 0; dp_rows_next(&r)) {
    const float *g = (const float *)args->t[0].ptr + r.at[0];
    float *b = (float *)args->t[last].ptr + r.at[last];
    const int32_t sg = r.step[0], sb = r.step[last];
    if (reset)
      for (int32_t i = 0; i < r.run; i++) b[i * sb] = g[i * sg];
    else
      for (int32_t i = 0; i < r.run; i++) b[i * sb] += g[i * sg];
  }
}

void dp_sgd_f32(const dp_args *args, const dp_team *team) {
  const dp_sgd_cst *c = (const dp_sgd_cst *)args->cst;
  const float rate = c->rate;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    const float *g = (const float *)args->t[0].ptr + r.at[0];
    float *w = (float *)args->t[1].ptr + r.at[1];
    const int32_t sg = r.step[0], sw = r.step[1];
    for (int32_t i = 0; i < r.run; i++) {
      const float change = rate * g[i * sg];
      w[i * sw] -= change;
    }
  }
}
