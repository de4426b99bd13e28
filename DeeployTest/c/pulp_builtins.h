/* A mock of the builtins that dp_isa.h uses, for compilers without them: names, types and order of operands as in the GCC port's table of
 * builtins (pulp_builtins.def), results as the instruction set defines them, lane by lane in wide integers. Written without a look at the
 * C model of dp_isa.h, which the results are compared with.
 *
 * What the compiler checks is checked here: bounds of clip and clipu are constants and belong to 1 to 30 bits. */
#ifndef PULP_BUILTINS_H
#define PULP_BUILTINS_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef signed char pulp_v4qi __attribute__((vector_size(4)));
typedef short pulp_v2hi __attribute__((vector_size(4)));

typedef struct pulp_lanes {
  int64_t lane[4];
} pulp_lanes;

/* `count` lanes of a word, lane 0 from its lowest bits. */
static inline pulp_lanes pulp_unpack(const void *word, int count, int is_signed) {
  pulp_lanes result = {{0, 0, 0, 0}};
  uint32_t bits;
  memcpy(&bits, word, 4);
  for (int i = 0; i < count; i++) {
    const int width = 32 / count;
    const int64_t value = (int64_t)(bits / ((uint64_t)1 << i * width) % ((uint64_t)1 << width));
    result.lane[i] = is_signed && value >= (int64_t)1 << (width - 1) ? value - ((int64_t)1 << width) : value;
  }
  return result;
}

static inline int pulp_wrapped(int64_t value) {
  const uint32_t bits = (uint32_t)(uint64_t)value;
  int result;
  memcpy(&result, &bits, 4);
  return result;
}

static inline int pulp_dot(const void *x, int x_signed, const void *y, int y_signed, int count, int accumulator) {
  const pulp_lanes a = pulp_unpack(x, count, x_signed), b = pulp_unpack(y, count, y_signed);
  int64_t sum = accumulator;
  for (int i = 0; i < count; i++) sum += a.lane[i] * b.lane[i];
  return pulp_wrapped(sum);
}

#define PULP_DOT(name, V, count, x_signed, y_signed) \
  static inline int __builtin_pulp_dot##name(V x, V y) { return pulp_dot(&x, x_signed, &y, y_signed, count, 0); } \
  static inline int __builtin_pulp_sdot##name(V x, V y, int z) { return pulp_dot(&x, x_signed, &y, y_signed, count, z); }
PULP_DOT(sp4, pulp_v4qi, 4, 1, 1)
PULP_DOT(up4, pulp_v4qi, 4, 0, 0)
PULP_DOT(usp4, pulp_v4qi, 4, 0, 1)
PULP_DOT(sp2, pulp_v2hi, 2, 1, 1)
PULP_DOT(up2, pulp_v2hi, 2, 0, 0)
PULP_DOT(usp2, pulp_v2hi, 2, 0, 1)

/* expression: of the lanes p and q. */
#define PULP_LANES(name, is_signed, expression) \
  static inline pulp_v4qi __builtin_pulp_##name(pulp_v4qi x, pulp_v4qi y) { \
    const pulp_lanes a = pulp_unpack(&x, 4, is_signed), b = pulp_unpack(&y, 4, is_signed); \
    uint32_t bits = 0; \
    for (int i = 3; i >= 0; i--) { \
      const int64_t p = a.lane[i], q = b.lane[i]; \
      bits = bits * 256u + (uint32_t)((uint64_t)(expression) % 256u); \
    } \
    memcpy(&x, &bits, 4); \
    return x; \
  }
PULP_LANES(add4, 1, p + q)
PULP_LANES(sub4, 1, p - q)
PULP_LANES(min4, 1, p < q ? p : q)
PULP_LANES(max4, 1, p < q ? q : p)
PULP_LANES(maxu4, 0, p < q ? q : p)
PULP_LANES(avgu4, 0, (p + q) % 256 / 2)

static inline pulp_v4qi __builtin_pulp_shuffleb(pulp_v4qi x, pulp_v4qi mask) {
  const pulp_lanes from = pulp_unpack(&x, 4, 1), at = pulp_unpack(&mask, 4, 0);
  signed char result[4];
  for (int i = 0; i < 4; i++) result[i] = (signed char)from.lane[at.lane[i] % 4];
  memcpy(&x, result, 4);
  return x;
}

static inline pulp_v2hi __builtin_pulp_pack2(short x, short y) {
  const short halves[2] = {x, y};
  pulp_v2hi result;
  memcpy(&result, halves, 4);
  return result;
}

static inline int __builtin_pulp_mac(int x, int y, int acc) { return pulp_wrapped(acc + (int64_t)x * y); }
static inline int __builtin_pulp_msu(int x, int y, int acc) { return pulp_wrapped(acc - (int64_t)x * y); }
static inline int __builtin_pulp_minsi(int x, int y) { return x < y ? x : y; }
static inline int __builtin_pulp_maxsi(int x, int y) { return x < y ? y : x; }
static inline int __builtin_pulp_minusi(int x, int y) { return (unsigned)x < (unsigned)y ? x : y; }
static inline int __builtin_pulp_maxusi(int x, int y) { return (unsigned)x < (unsigned)y ? y : x; }
static inline int __builtin_pulp_abs(int x) { return pulp_wrapped(x < 0 ? -(int64_t)x : x); }

static inline int __builtin_pulp_cnt(int x) {
  int count = 0;
  for (int i = 0; i < 32; i++) count += (int)((unsigned)x >> i & 1u);
  return count;
}

static inline int __builtin_pulp_ff1(int x) {
  int at = 0;
  while (at < 32 && !((unsigned)x >> at & 1u)) at++;
  return at;
}

static inline int __builtin_pulp_fl1(int x) {
  int at = 31;
  while (at >= 0 && !((unsigned)x >> at & 1u)) at--;
  return at < 0 ? 32 : at;
}

/* For 0 the compiler is not sure: the instruction says 0, the operation that the compiler takes it for 31. So nobody may ask. */
static inline int __builtin_pulp_clb(int x) {
  int count = 0;
  if (x == 0) abort();
  while (count < 31 && ((unsigned)x >> (30 - count) & 1u) == (unsigned)x >> 31) count++;
  return count;
}

static inline int __builtin_pulp_clip_r(int x, int bound) { return x > bound ? bound : x < -bound - 1 ? -bound - 1 : x; }
static inline int __builtin_pulp_clipu_r(int x, int bound) { return x > bound ? bound : x < 0 ? 0 : x; }

/* low: what goes with the upper bound 2^i - 1, whether -2^i or 0. */
static inline int pulp_clip(int x, int low, int high, int is_signed) {
  for (int i = 0; i < 30; i++)
    if (high == (1 << i) - 1 && low == (is_signed ? -(1 << i) : 0)) return x > high ? high : x < low ? low : x;
  abort();
}

#define PULP_CONSTANT(x) __extension__({ enum { pulp_constant = (x) }; (int)pulp_constant; })
#define __builtin_pulp_clip(x, low, high) pulp_clip(x, PULP_CONSTANT(low), PULP_CONSTANT(high), 1)
#define __builtin_pulp_clipu(x, low, high) pulp_clip(x, PULP_CONSTANT(low), PULP_CONSTANT(high), 0)
#endif
