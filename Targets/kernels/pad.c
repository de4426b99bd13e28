/* dp_pad_{1,2,4,8}: see pad.h. The elements are numbered row-major and split over the cores; a core walks its part as runs. */
#include "pad.h"

/* The elements may be floats: these types may alias anything. */
typedef uint8_t __attribute__((may_alias)) dp_pad_word_1;
typedef uint16_t __attribute__((may_alias)) dp_pad_word_2;
typedef uint32_t __attribute__((may_alias)) dp_pad_word_4;
typedef uint64_t __attribute__((may_alias)) dp_pad_word_8;

/* Offsets of element 0 of row `row` (all axes but the last) in both operands; returns 0 if the row of x is padding. */
static int32_t dp_pad_row(const dp_args *args, const dp_pad_cst *c, int32_t row, int32_t *x, int32_t *y) {
  const int32_t last = c->rank - 1;
  int32_t present = 1;
  *x = *y = 0;
  for (int32_t d = last - 1; d >= 0; d--) {
    const int32_t p = row % args->n[d], q = p - args->t[0].pad[d];
    if (q < 0 || p >= c->end[d] - args->lo[d]) {
      present = 0;
    } else {
      *x += q * args->t[0].str[d];
    }
    *y += p * args->t[1].str[d];
    row /= args->n[d];
  }
  return present;
}

#define DP_PAD(bytes)                                                                              \
  void dp_pad_##bytes(const dp_args *args, const dp_team *team) {                                  \
    const dp_pad_cst *c = (const dp_pad_cst *)args->cst;                                           \
    const uint64_t bits = (uint64_t)(uint32_t)c->value_hi << 32 | (uint32_t)c->value_lo;           \
    const dp_pad_word_##bytes value = (dp_pad_word_##bytes)bits;                                   \
    const dp_pad_word_##bytes *x = (const dp_pad_word_##bytes *)args->t[0].ptr;                    \
    dp_pad_word_##bytes *y = (dp_pad_word_##bytes *)args->t[1].ptr;                                \
    const int32_t last = c->rank - 1, n = args->n[last];                                           \
    const int32_t sx = args->t[0].str[last], sy = args->t[1].str[last];                            \
    int32_t total = n, i, end;                                                                     \
    for (int32_t d = 0; d < last; d++) total *= args->n[d];                                        \
    dp_share(team, total, &i, &end);                                                               \
    while (i < end) {                                                                              \
      const int32_t first = i % n, stop = dp_min(n, first + end - i), pad = args->t[0].pad[last];  \
      int32_t ax, ay, p = first;                                                                   \
      const int32_t present = dp_pad_row(args, c, i / n, &ax, &ay);                             \
      const int32_t left = present ? dp_min(stop, pad) : stop;                                     \
      const int32_t body = dp_min(stop, c->end[last] - args->lo[last]);                            \
      for (; p < left; p++) y[ay + p * sy] = value;                                                \
      for (; p < body; p++) y[ay + p * sy] = x[ax + (p - pad) * sx];                               \
      for (; p < stop; p++) y[ay + p * sy] = value;                                                \
      i += stop - first;                                                                           \
    }                                                                                              \
  }
DP_PAD(1)
DP_PAD(2)
DP_PAD(4)
DP_PAD(8)
