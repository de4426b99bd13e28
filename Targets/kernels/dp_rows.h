/* Walking the elements of an element-wise iteration space: the interface that all element-wise kernels share.
 *
 * Axes n[0..rank-1], rank <= DP_RANK, comes from the constant struct (its first field). Every operand has `rank` dimensions in the order of
 * the axes; a dimension over which it is broadcast has one element and str 0. Inputs come first, the output is the last operand.
 * Adjacent axes are merged by the compiler, so a dense operation has one axis.
 *
 * The elements are numbered row-major over the axes and split evenly over the cores; a core walks its part as runs along the last axis:
 *
 *     dp_rows r;
 *     for (dp_rows_first(&r, args, team, rank, operands); r.run > 0; dp_rows_next(&r))
 *       for (i = 0; i < r.run; i++) ... operand o's element is at r.at[o] + i * r.step[o] ...
 */
#ifndef DP_ROWS_H
#define DP_ROWS_H
#include "dp_kernel.h"

#define DP_ROWS_OPERANDS 5

typedef struct dp_rows {
  const dp_args *args;
  int32_t rank, operands;
  int32_t left;                  /* elements of this core from the current run on */
  int32_t run;                   /* elements of the current run; 0 when all is done */
  int32_t index[DP_RANK];        /* of the run's first element */
  int32_t at[DP_ROWS_OPERANDS];   /* offset of the run's first element, per operand */
  int32_t step[DP_ROWS_OPERANDS]; /* distance of neighbours in the run, per operand */
} dp_rows;

static inline void dp_rows_first(dp_rows *r, const dp_args *args, const dp_team *team, int32_t rank, int32_t operands) {
  int32_t total = 1, begin, end;
  r->args = args;
  r->rank = rank;
  r->operands = operands;
  for (int32_t d = 0; d < rank; d++) total *= args->n[d];
  dp_share(team, total, &begin, &end);
  r->left = end - begin;
  r->run = 0;
  if (r->left <= 0) return;
  for (int32_t d = rank - 1, rest = begin; d >= 0; d--) {
    r->index[d] = rest % args->n[d];
    rest /= args->n[d];
  }
  for (int32_t o = 0; o < operands; o++) {
    const dp_tile *t = &args->t[o];
    int32_t at = 0;
    for (int32_t d = 0; d < rank; d++) at += r->index[d] * t->str[d];
    r->at[o] = at;
    r->step[o] = t->str[rank - 1];
  }
  r->run = dp_min(r->left, args->n[rank - 1] - r->index[rank - 1]);
}

static inline void dp_rows_next(dp_rows *r) {
  const dp_args *args = r->args;
  const int32_t last = r->rank - 1;
  r->left -= r->run;
  if (r->left <= 0) {
    r->run = 0;
    return;
  }
  /* Only the first run may begin inside a row. */
  for (int32_t o = 0; o < r->operands; o++) r->at[o] -= r->index[last] * r->step[o];
  r->index[last] = 0;
  for (int32_t d = last - 1; d >= 0; d--) {
    r->index[d]++;
    for (int32_t o = 0; o < r->operands; o++) r->at[o] += args->t[o].str[d];
    if (r->index[d] < args->n[d]) break;
    for (int32_t o = 0; o < r->operands; o++) r->at[o] -= args->n[d] * args->t[o].str[d];
    r->index[d] = 0;
  }
  r->run = dp_min(r->left, args->n[last]);
}

#endif
