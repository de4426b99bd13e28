/* Batch normalisation in training; the contract is in batch_norm_training.h. Lines (n, c) are split over the cores; where lines are walked
 * element by element, their pieces are. */
#include "batch_norm_training.h"

#include <math.h>

/* Element offset of (n, c) in an operand (n, c, ...). */
static inline int32_t bn_line(const dp_tile *t, int32_t n, int32_t c) { return n * t->str[0] + c * t->str[1]; }

void dp_batch_norm_sums_f32(const dp_args *args, const dp_team *team) {
  const dp_tile *ts = &args->t[0], *tx = &args->t[1];
  const int32_t count = args->n[2], step = tx->str[2], k = ts->str[2];
  float *acc = (float *)args->acc, *to = args->last ? (float *)ts->ptr : acc;
  int32_t line, end;
  dp_share(team, args->n[0] * args->n[1], &line, &end);
  if (count <= 0) return;
  for (; line < end; line++) {
    const int32_t n = line / args->n[1], c = line % args->n[1], at = bn_line(ts, n, c);
    const float *x = (const float *)tx->ptr + bn_line(tx, n, c);
    float shift = x[0], sum = 0.0f, squares = 0.0f;
    if (!args->first) {
      shift = acc[at];
      sum = acc[at + k];
      squares = acc[at + 2 * k];
    }
    for (int32_t i = 0; i < count; i++) {
      const float d = x[i * step] - shift, square = d * d;
      sum += d;
      squares += square;
    }
    to[at] = shift;
    to[at + k] = sum;
    to[at + 2 * k] = squares;
  }
}

void dp_batch_norm_finish_f32(const dp_args *args, const dp_team *team) {
  const dp_batch_norm_training_cst *cst = (const dp_batch_norm_training_cst *)args->cst;
  const dp_tile *ts = &args->t[0], *table = &args->t[7];
  const int32_t k = ts->str[2];
  const float count = (float)cst->count, keep = cst->momentum, take = 1.0f - cst->momentum;
  int32_t c, end;
  dp_share(team, args->n[0], &c, &end);
  for (; c < end; c++) {
    float total = 0.0f, squares = 0.0f;
    for (int32_t n = 0; n < cst->batch; n++) {
      const float *s = (const float *)ts->ptr + bn_line(ts, n, c);
      total += s[0] + s[k] / count;
    }
    const float mean = total / (float)cst->batch;
    for (int32_t n = 0; n < cst->batch; n++) {
      const float *s = (const float *)ts->ptr + bn_line(ts, n, c);
      const float inner = s[k] / count, off = s[0] + inner - mean;
      const float spread = s[2 * k] - s[k] * inner; /* rounding may leave less than nothing of it */
      squares += (spread > 0.0f || spread != spread ? spread : 0.0f) + count * (off * off);
    }
    const float variance = squares / ((float)cst->batch * count);
    const float inverse = 1.0f / sqrtf(variance + cst->epsilon);
    float *running_mean = (float *)args->t[3].ptr + c * args->t[3].str[0];
    float *running_variance = (float *)args->t[4].ptr + c * args->t[4].str[0];
    float *row = (float *)table->ptr + c * table->str[0];
    *running_mean = keep * *running_mean + take * mean;
    *running_variance = keep * *running_variance + take * variance;
    ((float *)args->t[5].ptr)[c * args->t[5].str[0]] = mean;
    ((float *)args->t[6].ptr)[c * args->t[6].str[0]] = inverse;
    row[0] = mean;
    row[table->str[1]] = inverse * ((const float *)args->t[1].ptr)[c * args->t[1].str[0]];
    row[2 * table->str[1]] = ((const float *)args->t[2].ptr)[c * args->t[2].str[0]];
  }
}

/* A piece of a line: elements [from, to) of line (n, c). */
typedef struct bn_piece {
  int32_t n, c, from, to;
} bn_piece;

/* The piece that begins at flat element `at` of a tile (n, c, r) and ends with its line or with `end`. */
static inline bn_piece bn_piece_at(const dp_args *args, int32_t at, int32_t end) {
  const int32_t row = args->n[2], line = at / row;
  bn_piece p;
  p.n = line / args->n[1];
  p.c = line % args->n[1];
  p.from = at % row;
  p.to = dp_min(row, p.from + end - at);
  return p;
}

void dp_batch_norm_apply_f32(const dp_args *args, const dp_team *team) {
  const dp_tile *tx = &args->t[0], *table = &args->t[1], *ty = &args->t[2];
  int32_t at, end;
  dp_share(team, args->n[0] * args->n[1] * args->n[2], &at, &end);
  while (at < end) {
    const bn_piece p = bn_piece_at(args, at, end);
    const float *row = (const float *)table->ptr + p.c * table->str[0];
    const float mean = row[0], factor = row[table->str[1]], bias = row[2 * table->str[1]];
    const float *x = (const float *)tx->ptr + bn_line(tx, p.n, p.c);
    float *y = (float *)ty->ptr + bn_line(ty, p.n, p.c);
    for (int32_t i = p.from; i < p.to; i++) {
      const float scaled = (x[i * tx->str[2]] - mean) * factor;
      y[i * ty->str[2]] = scaled + bias;
    }
    at += p.to - p.from;
  }
}

void dp_batch_norm_grad_sums_f32(const dp_args *args, const dp_team *team) {
  const dp_tile *ts = &args->t[0], *tdy = &args->t[1], *tx = &args->t[2];
  const int32_t k = ts->str[2];
  float *acc = (float *)args->acc, *to = args->last ? (float *)ts->ptr : acc;
  int32_t line, end;
  dp_share(team, args->n[0] * args->n[1], &line, &end);
  for (; line < end; line++) {
    const int32_t n = line / args->n[1], c = line % args->n[1], at = bn_line(ts, n, c);
    const float *dy = (const float *)tdy->ptr + bn_line(tdy, n, c), *x = (const float *)tx->ptr + bn_line(tx, n, c);
    const float mean = ((const float *)args->t[3].ptr)[c * args->t[3].str[0]];
    const float inverse = ((const float *)args->t[4].ptr)[c * args->t[4].str[0]];
    float plain = args->first ? 0.0f : acc[at], along = args->first ? 0.0f : acc[at + k];
    for (int32_t i = 0; i < args->n[2]; i++) {
      const float d = dy[i * tdy->str[2]], term = d * ((x[i * tx->str[2]] - mean) * inverse);
      plain += d;
      along += term;
    }
    to[at] = plain;
    to[at + k] = along;
  }
}

void dp_batch_norm_grad_finish_f32(const dp_args *args, const dp_team *team) {
  const dp_batch_norm_training_cst *cst = (const dp_batch_norm_training_cst *)args->cst;
  const dp_tile *ts = &args->t[0], *table = &args->t[6];
  const float count = (float)cst->batch * (float)cst->count;
  int32_t c, end;
  dp_share(team, args->n[0], &c, &end);
  for (; c < end; c++) {
    float dbias = 0.0f, dscale = 0.0f;
    for (int32_t n = 0; n < cst->batch; n++) {
      const float *s = (const float *)ts->ptr + bn_line(ts, n, c);
      dbias += s[0];
      dscale += s[ts->str[2]];
    }
    const float inverse = ((const float *)args->t[3].ptr)[c * args->t[3].str[0]];
    float *row = (float *)table->ptr + c * table->str[0];
    ((float *)args->t[4].ptr)[c * args->t[4].str[0]] = dscale;
    ((float *)args->t[5].ptr)[c * args->t[5].str[0]] = dbias;
    row[0] = ((const float *)args->t[1].ptr)[c * args->t[1].str[0]] * inverse;
    row[table->str[1]] = ((const float *)args->t[2].ptr)[c * args->t[2].str[0]];
    row[2 * table->str[1]] = dbias / count;
    row[3 * table->str[1]] = inverse * dscale / count;
  }
}

void dp_batch_norm_grad_apply_f32(const dp_args *args, const dp_team *team) {
  const dp_tile *tdy = &args->t[0], *tx = &args->t[1], *table = &args->t[2], *tdx = &args->t[3];
  int32_t at, end;
  dp_share(team, args->n[0] * args->n[1] * args->n[2], &at, &end);
  while (at < end) {
    const bn_piece p = bn_piece_at(args, at, end);
    const float *row = (const float *)table->ptr + p.c * table->str[0];
    const float a = row[0], mean = row[table->str[1]], b = row[2 * table->str[1]], g = row[3 * table->str[1]];
    const float *dy = (const float *)tdy->ptr + bn_line(tdy, p.n, p.c), *x = (const float *)tx->ptr + bn_line(tx, p.n, p.c);
    float *dx = (float *)tdx->ptr + bn_line(tdx, p.n, p.c);
    for (int32_t i = p.from; i < p.to; i++) {
      const float along = (x[i * tx->str[2]] - mean) * g;
      dx[i * tdx->str[2]] = a * ((dy[i * tdy->str[2]] - b) - along);
    }
    at += p.to - p.from;
  }
}
