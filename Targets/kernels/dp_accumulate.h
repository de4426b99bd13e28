/* What products with accumulators (convolutions, matrix products) have in common: the walk over the
 * points of an output tile, and operands that are broadcast over the output. Included by kernels only.
 *
 * Arithmetic on 64-bit accumulators wraps: where the format asks for exact values the compiler has proven that nothing does.
 */
#ifndef DP_ACCUMULATE_H
#define DP_ACCUMULATE_H
#include "dp_kernel.h"
#include "dp_requant.h"
#include "dp_types.h"

/* Axes of an output tile. */
#define DP_POINT 5

static inline int64_t dp_wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t dp_wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t dp_wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* The indices of flat point `index` of a tile with extents n[0..DP_POINT), row-major. */
static inline void dp_point_at(int32_t *point, const int32_t *n, int32_t index) {
  for (int d = DP_POINT - 1; d >= 0; d--) {
    point[d] = index % n[d];
    index /= n[d];
  }
}

/* The first point of the next row. */
static inline void dp_point_next_row(int32_t *point, const int32_t *n) {
  point[DP_POINT - 1] = 0;
  for (int d = DP_POINT - 2; d >= 0; d--) {
    if (++point[d] < n[d]) return;
    point[d] = 0;
  }
}

/* Offset of a point in an operand that has the output's dimensions (or is broadcast over some). */
static inline int32_t dp_point_offset(const dp_tile *t, const int32_t *point) {
  int32_t offset = 0;
  for (int d = 0; d < DP_POINT; d++) offset += point[d] * t->str[d];
  return offset;
}

/* An operand that accompanies the output (bias, mul, add, ...) along one row of it: element j is at offset + j * step. data is NULL where
 * the operand is absent. */
typedef struct dp_along {
  const void *data;
  int32_t offset, step;
} dp_along;

static inline dp_along dp_along_row(const dp_args *args, int32_t slot, const int32_t *point) {
  dp_along a = {NULL, 0, 0};
  if (slot >= 0) {
    a.data = args->t[slot].ptr;
    a.offset = dp_point_offset(&args->t[slot], point);
    a.step = args->t[slot].str[DP_POINT - 1];
  }
  return a;
}

static inline int32_t dp_along_i32(const dp_along *a, int32_t j) { return ((const int32_t *)a->data)[a->offset + j * a->step]; }
static inline float dp_along_f32(const dp_along *a, int32_t j) { return ((const float *)a->data)[a->offset + j * a->step]; }
static inline int64_t dp_along_code(const dp_along *a, int32_t j, int32_t code) {
  return dp_load(a->data, code, a->offset + j * a->step);
}

#endif
