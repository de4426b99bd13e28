/* dp_copy_{1,2,4,8}: target = source, element by element; see copy.h. Runs that are dense on both sides are block copies. */
#include "copy.h"

#include <string.h>

#include "dp_rows.h"

/* The elements may be floats: these types may alias anything. 64-bit elements are aligned to 4 bytes. */
typedef uint8_t __attribute__((may_alias)) dp_copy_word_1;
typedef uint16_t __attribute__((may_alias)) dp_copy_word_2;
typedef uint32_t __attribute__((may_alias)) dp_copy_word_4;
typedef uint64_t __attribute__((may_alias, aligned(4))) dp_copy_word_8;

#define DP_COPY(bytes)                                                                        \
  void dp_copy_##bytes(const dp_args *args, const dp_team *team) {                            \
    const dp_copy_cst *c = (const dp_copy_cst *)args->cst;                                    \
    dp_rows r;                                                                                \
    for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {            \
      const dp_copy_word_##bytes *x = (const dp_copy_word_##bytes *)args->t[0].ptr + r.at[0]; \
      dp_copy_word_##bytes *y = (dp_copy_word_##bytes *)args->t[1].ptr + r.at[1];             \
      const int32_t sx = r.step[0], sy = r.step[1];                                           \
      if (sx == 1 && sy == 1) {                                                               \
        memcpy((void *)y, (const void *)x, (size_t)r.run * bytes);                            \
        continue;                                                                             \
      }                                                                                       \
      for (int32_t i = 0; i < r.run; i++, x += sx, y += sy) *y = *x;                          \
    }                                                                                         \
  }

DP_COPY(1)
DP_COPY(2)
DP_COPY(4)
DP_COPY(8)
