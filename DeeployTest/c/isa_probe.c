/* Every intrinsic of dp_isa.h on the same vectors, each stream of results in a file of its own, NAME.bin, made of uint32_t. The host runs
 * the C model, the chip (compiled with DP_XPULP) the instructions. The streams "a", "b", "c" and "x" are the operands. */
#include "dp_files.h"
#include "dp_isa.h"

#define PAIRS 16384  /* all pairs of bytes, four in a word */
#define CORNERS 18   /* all pairs of them */
#define RANDOM 3000
#define SHORT (PAIRS + CORNERS * CORNERS + RANDOM)
#define MIDDLE (SHORT + 1024) /* and -512 to 511, for what has one operand */
#define LONG (SHORT + 65536)  /* and all signed halves, from 0 outwards */

static const uint32_t corner[CORNERS] = {0,          1,          0xFFFFFFFFu, 0x7FFFFFFFu, 0x80000000u, 0x80000001u,
                                         0x7FFF8000u, 0x80007FFFu, 0x80008000u, 0x7FFF7FFFu, 0x80808080u, 0x7F7F7F7Fu,
                                         0x7F80FF01u, 0xFF00FF00u, 0x0000FFFFu, 0xFFFF0000u, 0x00010203u, 0x40000000u};
static uint32_t out[LONG];

static inline uint32_t next(uint32_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

typedef struct operands {
  uint32_t a, b, c;
} operands;

/* Vector k. The generator goes on, so k must run from 0. */
static inline operands vector(uint32_t k, uint32_t *state) {
  operands v;
  v.c = next(state);
  if (k < PAIRS) {
    const uint32_t first = k / 64, second = k % 64 * 4;
    v.a = first * 0x01010101u;
    v.b = second * 0x01010101u + 0x03020100u;
  } else if (k < PAIRS + CORNERS * CORNERS) {
    v.a = corner[(k - PAIRS) / CORNERS];
    v.b = corner[(k - PAIRS) % CORNERS];
    if (k % 2) v.c = corner[k / 2 % CORNERS];
  } else if (k < SHORT) {
    v.a = next(state);
    v.b = next(state);
    if (k % 4 == 1) v.a >>= v.b & 31;
    if (k % 4 == 2) v.a = ~(v.a >> (v.b & 31));
    if (k % 4 == 3) v.a <<= v.b & 31;
  } else {
    const uint32_t distance = (k - SHORT) / 2;
    v.a = k % 2 == SHORT % 2 ? distance : ~distance;
    v.b = v.c;
  }
  return v;
}

/* X(name, number of vectors, expression) */
#define OPERATIONS(X) \
  X(a, SHORT, a) X(b, SHORT, b) X(c, SHORT, c) X(x, LONG, a) \
  X(sdotsp4, SHORT, dp_sdotsp4((int32_t)c, a, b)) X(sdotup4, SHORT, dp_sdotup4(c, a, b)) X(sdotusp4, SHORT, dp_sdotusp4((int32_t)c, a, b)) \
  X(sdotsp2, SHORT, dp_sdotsp2((int32_t)c, a, b)) X(sdotup2, SHORT, dp_sdotup2(c, a, b)) X(sdotusp2, SHORT, dp_sdotusp2((int32_t)c, a, b)) \
  X(dotsp4, SHORT, dp_dotsp4(a, b)) X(dotup4, SHORT, dp_dotup4(a, b)) X(dotusp4, SHORT, dp_dotusp4(a, b)) \
  X(dotsp2, SHORT, dp_dotsp2(a, b)) X(dotup2, SHORT, dp_dotup2(a, b)) X(dotusp2, SHORT, dp_dotusp2(a, b)) \
  X(add4, SHORT, dp_add4(a, b)) X(sub4, SHORT, dp_sub4(a, b)) X(min4, SHORT, dp_min4(a, b)) X(max4, SHORT, dp_max4(a, b)) \
  X(maxu4, SHORT, dp_maxu4(a, b)) X(avgu4, SHORT, dp_avgu4(a, b)) \
  X(shuffle4, SHORT, dp_shuffle4(c, a ^ b)) X(pack2, SHORT, dp_pack2(a, b)) \
  X(mac, SHORT, dp_mac((int32_t)c, (int32_t)a, (int32_t)b)) X(msu, SHORT, dp_msu((int32_t)c, (int32_t)a, (int32_t)b)) \
  X(mins, SHORT, dp_mins((int32_t)a, (int32_t)b)) X(maxs, SHORT, dp_maxs((int32_t)a, (int32_t)b)) \
  X(minu, SHORT, dp_minu(a, b)) X(maxu, SHORT, dp_maxu(a, b)) \
  X(clipr, SHORT, dp_clipr((int32_t)a, (int32_t)(b & 0x7FFFFFFFu))) \
  X(clipr_small, SHORT, dp_clipr(dp_exths(a), (int32_t)(b & 0x7FFFu))) \
  X(clip_1, MIDDLE, dp_clip((int32_t)a, 1)) X(clip_8, MIDDLE, dp_clip((int32_t)a, 8)) \
  X(clip_16, LONG, dp_clip((int32_t)a, 16)) X(clip_31, SHORT, dp_clip((int32_t)a, 31)) \
  X(clipu_1, MIDDLE, dp_clipu((int32_t)a, 1)) X(clipu_9, MIDDLE, dp_clipu((int32_t)a, 9)) \
  X(clipu_16, LONG, dp_clipu((int32_t)a, 16)) X(clipu_31, SHORT, dp_clipu((int32_t)a, 31)) \
  X(abs, MIDDLE, dp_abs((int32_t)a)) X(ff1, MIDDLE, dp_ff1(a)) X(fl1, MIDDLE, dp_fl1(a)) \
  X(clb, MIDDLE, dp_clb((int32_t)a)) X(cnt, MIDDLE, dp_cnt(a)) X(exths, LONG, dp_exths(a)) \
  X(exthz, LONG, dp_exthz(a)) X(extbs, MIDDLE, dp_extbs(a)) X(extbz, MIDDLE, dp_extbz(a))

/* One loop each: the operands come from the generator, so nothing is folded. */
#define LOOP(name, count, expression) \
  static void run_##name(void) { \
    uint32_t state = 0x2545F491u; /* in a register: L2 is slow */ \
    for (uint32_t k = 0; k < (count); k++) { \
      const operands v = vector(k, &state); \
      const uint32_t a = v.a, b = v.b, c = v.c; \
      (void)a, (void)b, (void)c; \
      out[k] = (uint32_t)(expression); \
    } \
  }
OPERATIONS(LOOP)

static void all(void *failed) {
#define RUN(name, count, expression) \
  run_##name(); \
  *(int *)failed |= dp_write_part(#name ".bin", 0, out, (count) * 4u);
  OPERATIONS(RUN)
}

#ifdef DP_XPULP
#include "dp_runtime.h"

int main(void) {
  int failed = 0;
  dp_cluster_call(all, &failed);
  return failed;
}
#else
#include <stdio.h>

int dp_write_part(const char *name, uint32_t offset, const void *data, uint32_t bytes) {
  FILE *file = fopen(name, offset ? "ab" : "wb");
  if (!file) return 1;
  const size_t written = fwrite(data, 1, bytes, file);
  return fclose(file) != 0 || written != bytes;
}

int main(void) {
  int failed = 0;
  all(&failed);
  return failed;
}
#endif
