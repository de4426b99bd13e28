/* dp_inorm_*: integer normalisation of whole lines; see inorm.h. Divisions truncate toward zero, as C's do. */
#include "inorm.h"

#include "dp_lines.h"

/* floor(sqrt(v)), v >= 0, one bit of the root at a time. */
#define DP_INORM_ROOT(W)                              \
  static W dp_inorm_root_##W(W v) {                   \
    W root = 0, bit = (W)1 << (sizeof(W) * 8 - 2);    \
    while (bit > v) bit >>= 2;                        \
    for (; bit != 0; bit >>= 2) {                     \
      if (v >= root + bit) {                          \
        v -= root + bit;                              \
        root = (root >> 1) + bit;                     \
      } else {                                        \
        root >>= 1;                                   \
      }                                               \
    }                                                 \
    return root;                                      \
  }
DP_INORM_ROOT(int32_t)
DP_INORM_ROOT(int64_t)

#define DP_INORM(name, T, W)                                                                          \
  void name(const dp_args *args, const dp_team *team) {                                               \
    const dp_inorm_cst *c = (const dp_inorm_cst *)args->cst;                                          \
    const dp_tile *tx = &args->t[0], *ty = &args->t[1], *tw = &args->t[2], *tb = &args->t[3];         \
    const int32_t r = c->rank, n = args->n[r];                                                        \
    int32_t begin, end;                                                                               \
    dp_share(team, dp_lines(args, r), &begin, &end);                                                  \
    if (n <= 0) return;                                                                               \
    for (int32_t line = begin; line < end; line++) {                                                  \
      const T *x = (const T *)tx->ptr + dp_line_at(args, tx, r, line);                                \
      int8_t *y = (int8_t *)ty->ptr + dp_line_at(args, ty, r, line);                                  \
      const int32_t *w = (const int32_t *)tw->ptr + dp_line_at(args, tw, r, line);                    \
      const int32_t *b = c->centre ? (const int32_t *)tb->ptr + dp_line_at(args, tb, r, line) : w;    \
      W mean = 0, var = 0;                                                                            \
      if (c->centre) {                                                                                \
        for (int32_t i = 0; i < n; i++) mean += x[i * tx->str[r]];                                    \
        mean /= n;                                                                                    \
      }                                                                                               \
      for (int32_t i = 0; i < n; i++) {                                                               \
        const W d = x[i * tx->str[r]] - mean;                                                         \
        var += d * d;                                                                                 \
      }                                                                                               \
      const W deviation = dp_inorm_root_##W(var / n + 1);                                             \
      for (int32_t i = 0; i < n; i++) {                                                               \
        const W q = (x[i * tx->str[r]] - mean) * w[i * tw->str[r]] / deviation;                       \
        if (c->centre) {                                                                              \
          y[i * ty->str[r]] = (int8_t)((q + b[i * tb->str[r]]) >> c->shift);                          \
        } else {                                                                                      \
          const W v = q >> c->shift;                                                                  \
          y[i * ty->str[r]] = (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);                          \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
  }
DP_INORM(dp_inorm_i8_32, int8_t, int32_t)
DP_INORM(dp_inorm_u8_32, uint8_t, int32_t)
DP_INORM(dp_inorm_i16_32, int16_t, int32_t)
DP_INORM(dp_inorm_u16_32, uint16_t, int32_t)
DP_INORM(dp_inorm_i32_32, int32_t, int32_t)
DP_INORM(dp_inorm_i8_64, int8_t, int64_t)
DP_INORM(dp_inorm_u8_64, uint8_t, int64_t)
DP_INORM(dp_inorm_i16_64, int16_t, int64_t)
DP_INORM(dp_inorm_u16_64, uint16_t, int64_t)
DP_INORM(dp_inorm_i32_64, int32_t, int64_t)
