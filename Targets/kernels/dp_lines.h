/* Walking the lines of a step whose kernels need whole lines: softmax, normalisation, reduction.
 *
 * Axes n[0..rank-1] are parallel, the axes after them run along a line. Operands have their dimensions in the order of the axes. Lines are
 * numbered row-major over the parallel axes and split evenly over the cores. */
#ifndef DP_LINES_H
#define DP_LINES_H
#include "dp_kernel.h"

/* Number of lines of the tile. */
static inline int32_t dp_lines(const dp_args *args, int32_t rank) {
  int32_t total = 1;
  for (int32_t d = 0; d < rank; d++) total *= args->n[d];
  return total;
}

/* Offset of the first element of line `line` in operand `t`. */
static inline int32_t dp_line_at(const dp_args *args, const dp_tile *t, int32_t rank, int32_t line) {
  int32_t at = 0;
  for (int32_t d = rank - 1; d >= 0; d--) {
    const int32_t n = args->n[d];
    at += (line % n) * t->str[d];
    line /= n;
  }
  return at;
}

#endif
