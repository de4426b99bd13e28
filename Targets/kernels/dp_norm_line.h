/* The statistics of a line, which layer normalisation and its gradients share. Two passes, always in the same order. */
#ifndef DP_NORM_LINE_H
#define DP_NORM_LINE_H
#include <math.h>

#include "dp_kernel.h"

/* Sum of (x - mean), or of its square, over a line of outer x inner elements. */
static inline float dp_norm_sum(const float *x, int32_t outer, int32_t inner, int32_t so, int32_t si, float mean, int32_t square) {
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

/* inverse: 1 / sqrt(variance + epsilon). */
typedef struct dp_norm_line {
  float mean, inverse;
} dp_norm_line;

/* Of a line of outer x inner elements with the strides so and si; without `centre` the mean is taken as 0. */
static inline dp_norm_line dp_norm_line_of(const float *x, int32_t outer, int32_t inner, int32_t so, int32_t si, int32_t centre,
                                           float epsilon) {
  const float count = (float)(outer * inner);
  dp_norm_line line;
  line.mean = centre ? dp_norm_sum(x, outer, inner, so, si, 0.0f, 0) / count : 0.0f;
  line.inverse = 1.0f / sqrtf(dp_norm_sum(x, outer, inner, so, si, line.mean, 1) / count + epsilon);
  return line;
}

#endif
