/* Instructions of the cores that no C compiler chooses, a function each. Packed operands are uint32_t words: lane 0 in the lowest bits,
 * 4 lanes of 8 bits (..4) or 2 of 16 (..2), signed as the name says (s, u; "us": a unsigned, b signed). Arithmetic wraps modulo 2^32, that
 * in lanes modulo 2^8; nothing rounds except avgu4, which rounds down; every bit pattern is allowed where no range is given.
 *   dp_sdotsp4/up4/usp4/sp2/up2/usp2(acc, a, b)   acc + sum of a[i] * b[i];   dp_dot..(a, b): the same without acc
 *   dp_add4 dp_sub4(a, b)   a + b, a - b per lane        dp_min4 dp_max4 dp_maxu4(a, b)   signed min and max, unsigned max per lane
 *   dp_avgu4(a, b)          ((a + b) mod 256) >> 1 per lane, unsigned: the mean only while a + b <= 255, so keep to that range
 *   dp_shuffle4(a, s)       lane i is lane s[i] & 3 of a  dp_pack2(lo, hi)   the low halves of lo (lane 0) and hi (lane 1)
 *   dp_mac(acc, a, b)       acc + a * b                   dp_msu(acc, a, b)  acc - a * b
 *   dp_clip(x, n)           x clamped to [-2^(n-1), 2^(n-1) - 1]; n: integer constant, 1 to 31
 *   dp_clipu(x, n)          x (signed) clamped to [0, 2^(n-1) - 1]; n: likewise, so 9 for a byte
 *   dp_clipr(x, bound)      x clamped to [-bound - 1, bound], bound >= 0
 *   dp_mins dp_maxs dp_minu dp_maxu(a, b)   signed, unsigned (dp_min and dp_max of dp_kernel.h are the same in C, with branches)
 *   dp_abs(x)               |x|; INT32_MIN stays itself   dp_cnt(x)          number of ones
 *   dp_ff1 dp_fl1(x)        index of the lowest, highest one (0: the lowest bit); 32 if x is 0
 *   dp_clb(x)               how many bits right below the sign bit equal it: 31 for -1, 0 for 1 << 30, but also 0 for 0
 *   dp_exths dp_exthz dp_extbs dp_extbz(x)   low half or byte of x, extended by its sign or by zeros
 * Three ways to get them:
 *   DP_XPULP         if defined: XpulpV2 encodings, for a compiler without them.
 *   DP_ISA_BUILTINS  if 1: the builtins of the GCC port for PULP and GAP. 1 by default where that compiler is seen, which defines __pulp__,
 *                    and for GAP9 also __gap9__; -DDP_ISA_BUILTINS=0 gives C there too.
 *   otherwise        C, the model that defines the results.
 * DeeployTest/test_isa.py compares the encodings with the model on the simulated chip. The builtins are those of that compiler's table and
 * patterns, but they have been compiled and run only against a mock of the table, never with the compiler itself. */
#ifndef DP_ISA_H
#define DP_ISA_H
#include "dp_kernel.h"

#ifndef DP_ISA_BUILTINS
#if defined(__pulp__) || defined(__gap9__)
#define DP_ISA_BUILTINS 1
#else
#define DP_ISA_BUILTINS 0
#endif
#endif

#if defined(DP_XPULP)

#define DP_ISA_ASM(f7, f3, opcode, rs2) ".insn r " #opcode ", " #f3 ", " #f7 ", %0, %1, " rs2
#define DP_ISA_RR(T, name, U, opcode, f3, f7) \
  static inline T name(U a, U b) { T r; __asm__(DP_ISA_ASM(f7, f3, opcode, "%2") : "=r"(r) : "r"(a), "r"(b)); return r; }
#define DP_ISA_RRR(T, name, U, opcode, f3, f7) \
  static inline T name(T acc, U a, U b) { __asm__(DP_ISA_ASM(f7, f3, opcode, "%2") : "+r"(acc) : "r"(a), "r"(b)); return acc; }
#define DP_ISA_R(T, name, U, f3, f7) \
  static inline T name(U a) { T r; __asm__(DP_ISA_ASM(f7, f3, 0x33, "x0") : "=r"(r) : "r"(a)); return r; }
#define DP_ISA_CONSTANT(x, n, f3) __extension__({ int32_t dp_isa_r_; \
  __asm__(DP_ISA_ASM(0x0A, f3, 0x33, "x%2") : "=r"(dp_isa_r_) : "r"((int32_t)(x)), "i"(n)); dp_isa_r_; })

DP_ISA_RRR(int32_t, dp_sdotsp4, uint32_t, 0x57, 1, 0x5C)
DP_ISA_RRR(uint32_t, dp_sdotup4, uint32_t, 0x57, 1, 0x50)
DP_ISA_RRR(int32_t, dp_sdotusp4, uint32_t, 0x57, 1, 0x54)
DP_ISA_RRR(int32_t, dp_sdotsp2, uint32_t, 0x57, 0, 0x5C)
DP_ISA_RRR(uint32_t, dp_sdotup2, uint32_t, 0x57, 0, 0x50)
DP_ISA_RRR(int32_t, dp_sdotusp2, uint32_t, 0x57, 0, 0x54)
DP_ISA_RR(int32_t, dp_dotsp4, uint32_t, 0x57, 1, 0x4C)
DP_ISA_RR(uint32_t, dp_dotup4, uint32_t, 0x57, 1, 0x40)
DP_ISA_RR(int32_t, dp_dotusp4, uint32_t, 0x57, 1, 0x44)
DP_ISA_RR(int32_t, dp_dotsp2, uint32_t, 0x57, 0, 0x4C)
DP_ISA_RR(uint32_t, dp_dotup2, uint32_t, 0x57, 0, 0x40)
DP_ISA_RR(int32_t, dp_dotusp2, uint32_t, 0x57, 0, 0x44)
DP_ISA_RR(uint32_t, dp_add4, uint32_t, 0x57, 1, 0x00)
DP_ISA_RR(uint32_t, dp_sub4, uint32_t, 0x57, 1, 0x04)
DP_ISA_RR(uint32_t, dp_min4, uint32_t, 0x57, 1, 0x10)
DP_ISA_RR(uint32_t, dp_max4, uint32_t, 0x57, 1, 0x18)
DP_ISA_RR(uint32_t, dp_maxu4, uint32_t, 0x57, 1, 0x1C)
DP_ISA_RR(uint32_t, dp_avgu4, uint32_t, 0x57, 1, 0x0C)
DP_ISA_RR(uint32_t, dp_shuffle4, uint32_t, 0x57, 1, 0x60)
DP_ISA_RR(uint32_t, dp_pack2_high_first, uint32_t, 0x57, 0, 0x68)
static inline uint32_t dp_pack2(uint32_t lo, uint32_t hi) { return dp_pack2_high_first(hi, lo); }
DP_ISA_RRR(int32_t, dp_mac, int32_t, 0x33, 0, 0x21)
DP_ISA_RRR(int32_t, dp_msu, int32_t, 0x33, 1, 0x21)
DP_ISA_RR(int32_t, dp_clipr, int32_t, 0x33, 5, 0x0A)
DP_ISA_RR(int32_t, dp_mins, int32_t, 0x33, 4, 0x02)
DP_ISA_RR(uint32_t, dp_minu, uint32_t, 0x33, 5, 0x02)
DP_ISA_RR(int32_t, dp_maxs, int32_t, 0x33, 6, 0x02)
DP_ISA_RR(uint32_t, dp_maxu, uint32_t, 0x33, 7, 0x02)
DP_ISA_R(int32_t, dp_abs, int32_t, 0, 0x02)
DP_ISA_R(int32_t, dp_ff1, uint32_t, 0, 0x08)
DP_ISA_R(int32_t, dp_fl1, uint32_t, 1, 0x08)
DP_ISA_R(int32_t, dp_clb, int32_t, 2, 0x08)
DP_ISA_R(int32_t, dp_cnt, uint32_t, 3, 0x08)
DP_ISA_R(int32_t, dp_exths, uint32_t, 4, 0x08)
DP_ISA_R(uint32_t, dp_exthz, uint32_t, 5, 0x08)
DP_ISA_R(int32_t, dp_extbs, uint32_t, 6, 0x08)
DP_ISA_R(uint32_t, dp_extbz, uint32_t, 7, 0x08)
#define dp_clip(x, n) DP_ISA_CONSTANT(x, n, 1)
#define dp_clipu(x, n) DP_ISA_CONSTANT(x, n, 2)

#elif DP_ISA_BUILTINS

/* Scalars of the builtins are int, also unsigned ones. Vectors are opaque: signed lanes will do for all. The accumulator comes last. */
typedef int8_t dp_isa_v4 __attribute__((vector_size(4)));
typedef int16_t dp_isa_v2 __attribute__((vector_size(4)));

/* The compiler must know nothing about x: neither its value nor its range. Costs no instruction. */
#define DP_ISA_HIDE(x) __asm__("" : "+r"(x))
#define DP_ISA_DOT(T, name, V) \
  static inline T dp_dot##name(uint32_t a, uint32_t b) { return (T)__builtin_pulp_dot##name((V)a, (V)b); } \
  static inline T dp_sdot##name(T acc, uint32_t a, uint32_t b) { return (T)__builtin_pulp_sdot##name((V)a, (V)b, (int)acc); }
#define DP_ISA_LANES(name) \
  static inline uint32_t dp_##name(uint32_t a, uint32_t b) { return (uint32_t)__builtin_pulp_##name((dp_isa_v4)a, (dp_isa_v4)b); }
#define DP_ISA_RR(T, name, builtin) \
  static inline T name(T a, T b) { return (T)__builtin_pulp_##builtin((int)a, (int)b); }
/* The compiler takes three of these for operations of its own whose results for 0 or INT32_MIN are undefined or other ones. */
#define DP_ISA_R(T, name, U, builtin) \
  static inline T name(U x) { DP_ISA_HIDE(x); T r = (T)__builtin_pulp_##builtin((int)x); DP_ISA_HIDE(r); return r; }

DP_ISA_DOT(int32_t, sp4, dp_isa_v4)
DP_ISA_DOT(uint32_t, up4, dp_isa_v4)
DP_ISA_DOT(int32_t, usp4, dp_isa_v4)
DP_ISA_DOT(int32_t, sp2, dp_isa_v2)
DP_ISA_DOT(uint32_t, up2, dp_isa_v2)
DP_ISA_DOT(int32_t, usp2, dp_isa_v2)
DP_ISA_LANES(add4)
DP_ISA_LANES(sub4)
DP_ISA_LANES(min4)
DP_ISA_LANES(max4)
DP_ISA_LANES(maxu4)
DP_ISA_LANES(avgu4)
DP_ISA_RR(int32_t, dp_mins, minsi)
DP_ISA_RR(int32_t, dp_maxs, maxsi)
DP_ISA_RR(uint32_t, dp_minu, minusi)
DP_ISA_RR(uint32_t, dp_maxu, maxusi)
DP_ISA_RR(int32_t, dp_clipr, clip_r)
DP_ISA_R(int32_t, dp_abs, int32_t, abs)
DP_ISA_R(int32_t, dp_ff1, uint32_t, ff1)
DP_ISA_R(int32_t, dp_fl1, uint32_t, fl1)
DP_ISA_R(int32_t, dp_cnt, uint32_t, cnt)
/* The instruction gives 0 for 0, but the compiler's operation 31. */
static inline int32_t dp_clb(int32_t x) { return x ? (int32_t)__builtin_pulp_clb((int)x) : 0; }
/* Indices that the compiler knows would take an alternative of its pattern that looks at an operand which is not there. */
static inline uint32_t dp_shuffle4(uint32_t a, uint32_t s) {
  DP_ISA_HIDE(s);
  return (uint32_t)__builtin_pulp_shuffleb((dp_isa_v4)a, (dp_isa_v4)s);
}
static inline uint32_t dp_pack2(uint32_t lo, uint32_t hi) { return (uint32_t)__builtin_pulp_pack2((int16_t)lo, (int16_t)hi); }
static inline int32_t dp_mac(int32_t acc, int32_t a, int32_t b) { return (int32_t)__builtin_pulp_mac((int)a, (int)b, (int)acc); }
static inline int32_t dp_msu(int32_t acc, int32_t a, int32_t b) { return (int32_t)__builtin_pulp_msu((int)a, (int)b, (int)acc); }
/* Extensions have no builtins: the compiler chooses the instructions by itself. */
static inline int32_t dp_exths(uint32_t x) { return (int16_t)x; }
static inline uint32_t dp_exthz(uint32_t x) { return (uint16_t)x; }
static inline int32_t dp_extbs(uint32_t x) { return (int8_t)x; }
static inline uint32_t dp_extbz(uint32_t x) { return (uint8_t)x; }
/* The two with constant bounds do not accept those of n = 31. */
#define DP_ISA_TOP(n) ((int)((1u << ((n) - 1)) - 1u))
#define dp_clip(x, n) \
  ((int32_t)((n) < 31 ? __builtin_pulp_clip((int)(x), -DP_ISA_TOP(n) - 1, DP_ISA_TOP(n)) : __builtin_pulp_clip_r((int)(x), DP_ISA_TOP(n))))
#define dp_clipu(x, n) \
  ((int32_t)((n) < 31 ? __builtin_pulp_clipu((int)(x), 0, DP_ISA_TOP(n)) : __builtin_pulp_clipu_r((int)(x), DP_ISA_TOP(n))))

#else

static inline int32_t dp_exths(uint32_t x) { return (int32_t)((x & 0xFFFFu) ^ 0x8000u) - 0x8000; }
static inline uint32_t dp_exthz(uint32_t x) { return x & 0xFFFFu; }
static inline int32_t dp_extbs(uint32_t x) { return (int32_t)((x & 0xFFu) ^ 0x80u) - 0x80; }
static inline uint32_t dp_extbz(uint32_t x) { return x & 0xFFu; }
static inline int32_t dp_mac(int32_t acc, int32_t a, int32_t b) { return (int32_t)((uint32_t)acc + (uint32_t)a * (uint32_t)b); }
static inline int32_t dp_msu(int32_t acc, int32_t a, int32_t b) { return (int32_t)((uint32_t)acc - (uint32_t)a * (uint32_t)b); }
static inline int32_t dp_mins(int32_t a, int32_t b) { return dp_min(a, b); }
static inline int32_t dp_maxs(int32_t a, int32_t b) { return dp_max(a, b); }
static inline uint32_t dp_minu(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t dp_maxu(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline int32_t dp_abs(int32_t x) { return x < 0 ? (int32_t)(0u - (uint32_t)x) : x; }
static inline uint32_t dp_pack2(uint32_t lo, uint32_t hi) { return (lo & 0xFFFFu) | hi << 16; }
#define DP_ISA_4(f, a, b) \
  ((f(a, b, 0) & 0xFFu) | (f(a, b, 8) & 0xFFu) << 8 | (f(a, b, 16) & 0xFFu) << 16 | (f(a, b, 24) & 0xFFu) << 24)
#define DP_ISA_LANES(name, f) static inline uint32_t name(uint32_t a, uint32_t b) { return DP_ISA_4(f, a, b); }
#define DP_ISA_ADD(a, b, at) ((a >> at) + (b >> at))
#define DP_ISA_SUB(a, b, at) ((a >> at) - (b >> at))
#define DP_ISA_PICK(a, b, at) (a >> 8 * (b >> at & 3u))
DP_ISA_LANES(dp_add4, DP_ISA_ADD)
DP_ISA_LANES(dp_sub4, DP_ISA_SUB)
DP_ISA_LANES(dp_shuffle4, DP_ISA_PICK)

/* Products and sums in uint32_t, where wrapping is defined. ext: of a lane that was shifted down to bit 0. */
#define DP_ISA_PRODUCT(at, ext_a, ext_b) (uint32_t)ext_a(a >> (at)) * (uint32_t)ext_b(b >> (at))
#define DP_ISA_DOT(T, name, bits, ext_a, ext_b) \
  static inline T dp_dot##name(uint32_t a, uint32_t b) { \
    uint32_t sum = 0; \
    for (uint32_t at = 0; at < 32; at += bits) sum += DP_ISA_PRODUCT(at, ext_a, ext_b); \
    return (T)sum; \
  } \
  static inline T dp_sdot##name(T acc, uint32_t a, uint32_t b) { return (T)((uint32_t)acc + (uint32_t)dp_dot##name(a, b)); }
DP_ISA_DOT(int32_t, sp4, 8, dp_extbs, dp_extbs)
DP_ISA_DOT(uint32_t, up4, 8, dp_extbz, dp_extbz)
DP_ISA_DOT(int32_t, usp4, 8, dp_extbz, dp_extbs)
DP_ISA_DOT(int32_t, sp2, 16, dp_exths, dp_exths)
DP_ISA_DOT(uint32_t, up2, 16, dp_exthz, dp_exthz)
DP_ISA_DOT(int32_t, usp2, 16, dp_exthz, dp_exths)
#define DP_ISA_MIN(a, b, at) (uint32_t)dp_min(dp_extbs(a >> at), dp_extbs(b >> at))
#define DP_ISA_MAX(a, b, at) (uint32_t)dp_max(dp_extbs(a >> at), dp_extbs(b >> at))
#define DP_ISA_MAXU(a, b, at) dp_maxu(dp_extbz(a >> at), dp_extbz(b >> at))
#define DP_ISA_AVGU(a, b, at) (dp_extbz((a >> at) + (b >> at)) >> 1)
DP_ISA_LANES(dp_min4, DP_ISA_MIN)
DP_ISA_LANES(dp_max4, DP_ISA_MAX)
DP_ISA_LANES(dp_maxu4, DP_ISA_MAXU)
DP_ISA_LANES(dp_avgu4, DP_ISA_AVGU)
static inline int32_t dp_clipr(int32_t x, int32_t bound) { return dp_max(-bound - 1, dp_min(x, bound)); }
static inline int32_t dp_clip(int32_t x, int32_t n) { return dp_clipr(x, (1 << (n - 1)) - 1); }
static inline int32_t dp_clipu(int32_t x, int32_t n) { return dp_max(0, dp_min(x, (1 << (n - 1)) - 1)); }
static inline int32_t dp_ff1(uint32_t x) { return x ? __builtin_ctz(x) : 32; }
static inline int32_t dp_fl1(uint32_t x) { return x ? 31 - __builtin_clz(x) : 32; }
static inline int32_t dp_cnt(uint32_t x) { return __builtin_popcount(x); }
static inline int32_t dp_clb(int32_t x) {
  const uint32_t differs = (uint32_t)x ^ (x < 0 ? 0xFFFFFFFFu : 0u); /* ones where a bit is not the sign's */
  return differs ? __builtin_clz(differs) - 1 : x ? 31 : 0;
}

#endif
#endif
