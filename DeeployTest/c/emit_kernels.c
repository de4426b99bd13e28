/* Small kernels for the tests of emitted code; written from dp_kernel.h alone. */
#include "emit_kernels.h"

void dp_test_matmul(const dp_args *args, const dp_team *team) {
  const int32_t m = args->n[0], n = args->n[1], k = args->n[2];
  const dp_tile *y = &args->t[0], *a = &args->t[1], *b = &args->t[2];
  int32_t begin, end;
  dp_share(team, m * n, &begin, &end);
  for (int32_t i = begin; i < end; i++) {
    const int32_t row = i / n, column = i % n, at = row * y->str[0] + column * y->str[1];
    int32_t sum = args->first ? 0 : ((const int32_t *)args->acc)[at];
    for (int32_t j = 0; j < k; j++)
      sum += ((const int8_t *)a->ptr)[row * a->str[0] + j * a->str[1]] * ((const int8_t *)b->ptr)[j * b->str[0] + column * b->str[1]];
    if (args->last)
      ((int32_t *)y->ptr)[at] = sum;
    else
      ((int32_t *)args->acc)[at] = sum;
  }
}

void dp_test_blend(const dp_args *args, const dp_team *team) {
  const dp_test_cst *c = (const dp_test_cst *)args->cst;
  const dp_tile *a = &args->t[0], *b = &args->t[1], *y = &args->t[2];
  int32_t begin, end;
  dp_share(team, args->n[0], &begin, &end);
  for (int32_t i = begin; i < end; i++)
    ((float *)y->ptr)[i * y->str[0]] = c->scale[0] * ((const float *)a->ptr)[i * a->str[0]] + c->scale[1] * ((const float *)b->ptr)[i * b->str[0]];
}
