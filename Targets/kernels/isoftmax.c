/* dp_isoftmax_*, dp_itamax_*: integer softmax approximations of whole lines; see isoftmax.h. */
#include "isoftmax.h"

#include "dp_lines.h"

/* d = x - max;  z = min(-d / log2, 31);  p = d + z * log2;  e = (a * (p + b)^2 + c) >> z;  y = e * levels / sum(e).
 * The element that is the maximum gives a*b*b + c > 0, so the sum is positive. */
#define DP_ISOFTMAX_TERM(W) \
  static inline W dp_isoftmax_term_##W(W d, const dp_isoftmax_cst *c) { \
    W z = -d / c->log2;                                                 \
    if (z > 31) z = 31;                                                 \
    const W p = d + z * c->log2 + c->b;                                 \
    return (c->a * (p * p) + c->c) >> z;                                \
  }
DP_ISOFTMAX_TERM(int32_t)
DP_ISOFTMAX_TERM(int64_t)

#define DP_ISOFTMAX(name, T, W)                                                                 \
  void name(const dp_args *args, const dp_team *team) {                                         \
    const dp_isoftmax_cst *c = (const dp_isoftmax_cst *)args->cst;                              \
    const dp_tile *tx = &args->t[0], *ty = &args->t[1];                                         \
    const int32_t n = args->n[c->rank], sx = tx->str[c->rank], sy = ty->str[c->rank];           \
    int32_t begin, end;                                                                         \
    dp_share(team, dp_lines(args, c->rank), &begin, &end);                                      \
    if (n <= 0) return;                                                                         \
    for (int32_t line = begin; line < end; line++) {                                            \
      const T *x = (const T *)tx->ptr + dp_line_at(args, tx, c->rank, line);                    \
      uint8_t *y = (uint8_t *)ty->ptr + dp_line_at(args, ty, c->rank, line);                    \
      W top = x[0], sum = 0;                                                                    \
      for (int32_t i = 1; i < n; i++)                                                           \
        if (x[i * sx] > top) top = x[i * sx];                                                   \
      for (int32_t i = 0; i < n; i++) sum += dp_isoftmax_term_##W((W)x[i * sx] - top, c);       \
      for (int32_t i = 0; i < n; i++)                                                           \
        y[i * sy] = (uint8_t)(dp_isoftmax_term_##W((W)x[i * sx] - top, c) * c->levels / sum);   \
    }                                                                                           \
  }
DP_ISOFTMAX(dp_isoftmax_i8_32, int8_t, int32_t)
DP_ISOFTMAX(dp_isoftmax_u8_32, uint8_t, int32_t)
DP_ISOFTMAX(dp_isoftmax_i16_32, int16_t, int32_t)
DP_ISOFTMAX(dp_isoftmax_u16_32, uint16_t, int32_t)
DP_ISOFTMAX(dp_isoftmax_i32_32, int32_t, int32_t)
DP_ISOFTMAX(dp_isoftmax_i8_64, int8_t, int64_t)
DP_ISOFTMAX(dp_isoftmax_u8_64, uint8_t, int64_t)
DP_ISOFTMAX(dp_isoftmax_i16_64, int16_t, int64_t)
DP_ISOFTMAX(dp_isoftmax_u16_64, uint16_t, int64_t)
DP_ISOFTMAX(dp_isoftmax_i32_64, int32_t, int64_t)

/* Halvings between an element and the maximum: (distance + 16) / 32 with distance = max - x >= 0; beyond 31 nothing is left of 32 bits. */
static inline int32_t dp_itamax_shift(uint32_t distance) {
  const uint32_t shift = (distance >> 5) + (((distance & 31u) + 16u) >> 5);
  return shift > 31u ? 31 : (int32_t)shift;
}

/* Groups are walked with a running maximum; what was summed before is shifted when it rises. One group is ITAMax. */
#define DP_ITAMAX(S, T)                                                                                 \
  void dp_itamax_##S(const dp_args *args, const dp_team *team) {                                        \
    const dp_itamax_cst *c = (const dp_itamax_cst *)args->cst;                                          \
    const dp_tile *tx = &args->t[0], *ty = &args->t[1];                                                 \
    const int32_t n = args->n[c->rank], sx = tx->str[c->rank], sy = ty->str[c->rank];                   \
    const int32_t group = c->group > 0 ? c->group : n;                                                  \
    int32_t begin, end;                                                                                 \
    dp_share(team, dp_lines(args, c->rank), &begin, &end);                                              \
    if (n <= 0) return;                                                                                 \
    for (int32_t line = begin; line < end; line++) {                                                    \
      const T *x = (const T *)tx->ptr + dp_line_at(args, tx, c->rank, line);                            \
      uint8_t *y = (uint8_t *)ty->ptr + dp_line_at(args, ty, c->rank, line);                            \
      int32_t top = c->group > 0 ? -128 : x[0], sum = 0;                                                \
      for (int32_t g = 0; g < n; g += group) {                                                          \
        int32_t high = x[g * sx];                                                                       \
        for (int32_t i = g + 1; i < g + group; i++)                                                     \
          if (x[i * sx] > high) high = x[i * sx];                                                       \
        if (high > top) {                                                                               \
          sum >>= dp_itamax_shift((uint32_t)high - (uint32_t)top);                                      \
          top = high;                                                                                   \
        }                                                                                               \
        for (int32_t i = g; i < g + group; i++) sum += 256 >> dp_itamax_shift((uint32_t)top - (uint32_t)x[i * sx]); \
      }                                                                                                 \
      const int32_t inverse = c->numerator / sum;                                                       \
      for (int32_t i = 0; i < n; i++)                                                                   \
        y[i * sy] = (uint8_t)(inverse >> dp_itamax_shift((uint32_t)top - (uint32_t)x[i * sx]));         \
    }                                                                                                   \
  }
DP_ITAMAX(i8, int8_t)
DP_ITAMAX(u8, uint8_t)
DP_ITAMAX(i16, int16_t)
DP_ITAMAX(u16, uint16_t)
DP_ITAMAX(i32, int32_t)
