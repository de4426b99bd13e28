/* dp_gather_{1,2,4,8}, dp_stride_{1,2,4,8}: see gather.h. Lines (a, k) are split over the cores. */
#include "gather.h"

/* The elements may be floats: these types may alias anything. */
typedef uint8_t __attribute__((may_alias)) dp_gather_word_1;
typedef uint16_t __attribute__((may_alias)) dp_gather_word_2;
typedef uint32_t __attribute__((may_alias)) dp_gather_word_4;
typedef uint64_t __attribute__((may_alias)) dp_gather_word_8;

/* The entry that element `at` of the index tensor names. */
static int32_t dp_gather_entry(const dp_gather_cst *c, const void *index, int32_t at) {
  int64_t v;
  switch (c->index_bytes) {
    case 1: v = c->index_signed ? ((const int8_t *)index)[at] : ((const uint8_t *)index)[at]; break;
    case 2: v = c->index_signed ? ((const int16_t *)index)[at] : ((const uint16_t *)index)[at]; break;
    case 4: v = c->index_signed ? (int64_t)((const int32_t *)index)[at] : (int64_t)((const uint32_t *)index)[at]; break;
    default: v = ((const int64_t *)index)[at]; break;
  }
  if (v < 0) v += c->size;
  return v < 0 ? 0 : v >= c->size ? c->size - 1 : (int32_t)v;
}

#define DP_GATHER(bytes)                                                                                   \
  static void dp_gather_row_##bytes(const dp_tile *tx, const dp_tile *ty, int32_t a, int32_t entry, int32_t k, int32_t n) { \
    const dp_gather_word_##bytes *x = (const dp_gather_word_##bytes *)tx->ptr + a * tx->str[0] + entry * tx->str[1];        \
    dp_gather_word_##bytes *y = (dp_gather_word_##bytes *)ty->ptr + a * ty->str[0] + k * ty->str[1];       \
    const int32_t sx = tx->str[2], sy = ty->str[2];                                                        \
    for (int32_t b = 0; b < n; b++) y[b * sy] = x[b * sx];                                                 \
  }                                                                                                        \
  void dp_gather_##bytes(const dp_args *args, const dp_team *team) {                                       \
    const dp_gather_cst *c = (const dp_gather_cst *)args->cst;                                             \
    int32_t begin, end;                                                                                    \
    dp_share(team, args->n[0] * args->n[1], &begin, &end);                                                 \
    for (int32_t line = begin; line < end; line++) {                                                       \
      const int32_t a = line / args->n[1], k = line % args->n[1];                                          \
      const int32_t entry = dp_gather_entry(c, args->t[1].ptr, k * args->t[1].str[0]);                     \
      dp_gather_row_##bytes(&args->t[0], &args->t[2], a, entry, k, args->n[2]);                            \
    }                                                                                                      \
  }                                                                                                        \
  void dp_stride_##bytes(const dp_args *args, const dp_team *team) {                                       \
    const dp_stride_cst *c = (const dp_stride_cst *)args->cst;                                             \
    int32_t begin, end;                                                                                    \
    dp_share(team, args->n[0] * args->n[1], &begin, &end);                                                 \
    for (int32_t line = begin; line < end; line++) {                                                       \
      const int32_t a = line / args->n[1], k = line % args->n[1];                                          \
      dp_gather_row_##bytes(&args->t[0], &args->t[1], a, c->start + (args->lo[1] + k) * c->step, k, args->n[2]); \
    }                                                                                                      \
  }
DP_GATHER(1)
DP_GATHER(2)
DP_GATHER(4)
DP_GATHER(8)
