/* Requantisation: y = clamp((x * mul + add + half) >> shift), half = 2^(shift-1) if shift > 0 (docs: RequantShift).
 * wide: whether the product needs 64 bits; the compiler proves when it does not. */
#ifndef DP_REQUANT_H
#define DP_REQUANT_H
#include "dp_kernel.h"

typedef struct dp_requant {
  int32_t shift;
  int32_t lo, hi; /* clamp */
  int32_t wide;
} dp_requant;

static inline int32_t dp_requantize(int64_t x, int32_t mul, int32_t add, const dp_requant *r) {
  if (r->wide) {
    const int64_t half = r->shift > 0 ? (int64_t)1 << (r->shift - 1) : 0;
    const int64_t y = (x * mul + add + half) >> r->shift;
    return y < r->lo ? r->lo : y > r->hi ? r->hi : (int32_t)y;
  }
  const int32_t half = r->shift > 0 ? (int32_t)1 << (r->shift - 1) : 0;
  return dp_clamp(((int32_t)x * mul + add + half) >> r->shift, r->lo, r->hi);
}

#endif
