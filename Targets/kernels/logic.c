/* Boolean kernels and selection; see logic.h. */
#include "logic.h"

#include "dp_rows.h"

#define DP_LOGIC(name, expression)                                                                   \
  void dp_##name##_b8(const dp_args *args, const dp_team *team) {                                    \
    const dp_logic_cst *c = (const dp_logic_cst *)args->cst;                                         \
    dp_rows r;                                                                                       \
    for (dp_rows_first(&r, args, team, c->rank, 3); r.run > 0; dp_rows_next(&r)) {                   \
      const uint8_t *x = (const uint8_t *)args->t[0].ptr + r.at[0];                                  \
      const uint8_t *y = (const uint8_t *)args->t[1].ptr + r.at[1];                                  \
      uint8_t *z = (uint8_t *)args->t[2].ptr + r.at[2];                                              \
      for (int32_t i = 0; i < r.run; i++, x += r.step[0], y += r.step[1], z += r.step[2])            \
        *z = (uint8_t)(expression);                                                                  \
    }                                                                                                \
  }
DP_LOGIC(and, *x && *y)
DP_LOGIC(or, *x || *y)
DP_LOGIC(xor, !*x != !*y)

void dp_not_b8(const dp_args *args, const dp_team *team) {
  const dp_logic_cst *c = (const dp_logic_cst *)args->cst;
  dp_rows r;
  for (dp_rows_first(&r, args, team, c->rank, 2); r.run > 0; dp_rows_next(&r)) {
    const uint8_t *x = (const uint8_t *)args->t[0].ptr + r.at[0];
    uint8_t *y = (uint8_t *)args->t[1].ptr + r.at[1];
    for (int32_t i = 0; i < r.run; i++, x += r.step[0], y += r.step[1]) *y = !*x;
  }
}

/* The elements may be floats: these types may alias anything. 64-bit elements are aligned to 4 bytes. */
typedef uint8_t __attribute__((may_alias)) dp_where_word_1;
typedef uint16_t __attribute__((may_alias)) dp_where_word_2;
typedef uint32_t __attribute__((may_alias)) dp_where_word_4;
typedef uint64_t __attribute__((may_alias, aligned(4))) dp_where_word_8;

#define DP_WHERE(bytes)                                                                              \
  void dp_where_##bytes(const dp_args *args, const dp_team *team) {                                  \
    typedef dp_where_word_##bytes word;                                                              \
    const dp_logic_cst *c = (const dp_logic_cst *)args->cst;                                         \
    dp_rows r;                                                                                       \
    for (dp_rows_first(&r, args, team, c->rank, 4); r.run > 0; dp_rows_next(&r)) {                   \
      const uint8_t *when = (const uint8_t *)args->t[0].ptr + r.at[0];                               \
      const word *x = (const word *)args->t[1].ptr + r.at[1], *y = (const word *)args->t[2].ptr + r.at[2]; \
      word *z = (word *)args->t[3].ptr + r.at[3];                                                    \
      for (int32_t i = 0; i < r.run; i++) {                                                          \
        *z = *when ? *x : *y;                                                                        \
        when += r.step[0];                                                                           \
        x += r.step[1];                                                                              \
        y += r.step[2];                                                                              \
        z += r.step[3];                                                                              \
      }                                                                                              \
    }                                                                                                \
  }
DP_WHERE(1)
DP_WHERE(2)
DP_WHERE(4)
DP_WHERE(8)
