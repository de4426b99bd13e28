/* Gradients of poolings; the contract is in pool_grad.h. One core makes an element of dx from beginning to end. */
#include "pool_grad.h"

#include "dp_rows.h"
#include "dp_types.h"

/* The windows that hold position `at` along one axis: [*begin, *end). */
static inline void grad_windows(int32_t at, int32_t stride, int32_t extent, int32_t count, int32_t *begin, int32_t *end) {
  const int32_t low = at - extent + 1;
  *begin = low <= 0 ? 0 : (low + stride - 1) / stride;
  *end = dp_min(count, at / stride + 1);
}

/* Row h of channel (n, c) of the tile of dx; type: of the indices. */
DP_INLINE void grad_row(const dp_args *args, int32_t type, int32_t n, int32_t c, int32_t h) {
  const dp_max_pool_grad_cst *cst = (const dp_max_pool_grad_cst *)args->cst;
  const dp_tile *tdx = &args->t[0], *tdy = &args->t[1], *ti = &args->t[2];
  const int32_t row = args->lo[2] * cst->block_h + h, column = args->lo[3] * cst->block_w;
  const int32_t row0 = args->lo[2] * cst->step_h + cst->first_h + tdy->pad[2];
  const int32_t column0 = args->lo[3] * cst->step_w + cst->first_w + tdy->pad[3];
  const int64_t plane = ((int64_t)(args->lo[0] + n) * cst->channels + args->lo[1] + c) * cst->height * cst->width;
  const float *dy = (const float *)tdy->ptr + n * tdy->str[0] + c * tdy->str[1];
  const int32_t first = n * ti->str[0] + c * ti->str[1];
  float *dx = (float *)tdx->ptr + n * tdx->str[0] + c * tdx->str[1] + h * tdx->str[2];
  int32_t oh0, oh1;
  grad_windows(row + cst->pad_top, cst->stride_h, cst->extent_h, cst->out_h, &oh0, &oh1);
  for (int32_t w = 0; w < tdx->ext[3]; w++) {
    const int64_t inside = cst->column_major ? (int64_t)(column + w) * cst->height + row : (int64_t)row * cst->width + column + w;
    float sum = 0.0f;
    int32_t ow0, ow1;
    grad_windows(column + w + cst->pad_left, cst->stride_w, cst->extent_w, cst->out_w, &ow0, &ow1);
    for (int32_t oh = oh0 - row0; oh < oh1 - row0; oh++)
      for (int32_t ow = ow0 - column0; ow < ow1 - column0; ow++)
        if (dp_load(ti->ptr, type, first + oh * ti->str[2] + ow * ti->str[3]) == plane + inside)
          sum += dy[oh * tdy->str[2] + ow * tdy->str[3]];
    dx[w * tdx->str[3]] = sum;
  }
}

void dp_max_pool_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_max_pool_grad_cst *cst = (const dp_max_pool_grad_cst *)args->cst;
  const int32_t rows = args->t[0].ext[2], channels = args->n[1];
  int32_t at, end;
  dp_share(team, args->n[0] * channels * rows, &at, &end);
  for (; at < end; at++) {
    const int32_t n = at / rows / channels, c = at / rows % channels, h = at % rows;
    if (cst->type == DP_I64)
      grad_row(args, DP_I64, n, c, h);
    else
      grad_row(args, cst->type, n, c, h);
  }
}

void dp_global_average_grad_f32(const dp_args *args, const dp_team *team) {
  const dp_average_grad_cst *c = (const dp_average_grad_cst *)args->cst;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    const float *dy = (const float *)args->t[0].ptr + r.at[0];
    float *dx = (float *)args->t[1].ptr + r.at[1];
    const int32_t sy = r.step[0], sx = r.step[1];
    if (sy == 0) {
      const float value = dy[0] / c->count;
      for (int32_t i = 0; i < r.run; i++) dx[i * sx] = value;
      continue;
    }
    for (int32_t i = 0; i < r.run; i++) dx[i * sx] = dy[i * sy] / c->count;
  }
}
