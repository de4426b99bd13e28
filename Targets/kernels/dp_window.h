/* Which taps of a sliding window lie inside the input, from absolute positions, so that tiles at borders need nothing special. */
#ifndef DP_WINDOW_H
#define DP_WINDOW_H
#include "dp_kernel.h"

/* [*begin, *end): the taps k in [0, count) with 0 <= at + k * step < size; *begin == *end if there is none. step > 0. */
static inline void dp_window(int32_t at, int32_t step, int32_t count, int32_t size, int32_t *begin, int32_t *end) {
  const int32_t from = at < 0 ? (step - 1 - at) / step : 0;
  const int32_t to = at >= size ? 0 : dp_min(count, (size - 1 - at) / step + 1);
  *begin = from < to ? from : 0;
  *end = from < to ? to : 0;
}

/* The number of those taps. */
static inline int32_t dp_window_taps(int32_t at, int32_t step, int32_t count, int32_t size) {
  int32_t begin, end;
  dp_window(at, step, count, size, &begin, &end);
  return end - begin;
}

#endif
