/* Drives Targets/runtime/gap9 over the stand-in of the SDK with what no small network asks for: long and wide commands, more of them than there
 * are places, several handles, barriers, odd lengths. `main` is the project's, called by the runtime. argv is not used. */
#include <stdio.h>
#include <string.h>

#include "dp_files.h"
#include "dp_runtime.h"

#define CHECK(condition)                                        \
  do {                                                          \
    if (!(condition)) {                                         \
      printf("line %d: %s\n", __LINE__, #condition);            \
      failures++;                                               \
    }                                                           \
  } while (0)

#define WIDE 70000u
#define L1_BYTES 90000u

static int failures;
static uint8_t *l1;
static uint8_t wide[4u * WIDE], back[4u * WIDE];
static dp_l3 l3;

static uint8_t value(uint32_t i) { return (uint8_t)(i * 7u + i / 251u); }

static void l2_transfers(void) {
  dp_dma one, two, many[3];
  memset(&one, 0, sizeof one);
  memset(&two, 0, sizeof two);
  memset(many, 0, sizeof many);
  dp_dma_l2_wait(&one); /* idle */
  /* longer than one command of the DMA */
  dp_dma_l2(&one, l1, wide, WIDE, 1, WIDE, DP_IN);
  dp_dma_l2_wait(&one);
  CHECK(memcmp(l1, wide, WIDE) == 0 && one.pending == 0);
  /* rows further apart than it can, and many rows that are more bytes than it can */
  dp_dma_l2(&one, l1, wide, 100, 4, WIDE, DP_IN);
  dp_dma_l2(&two, l1 + 400, wide + 5, 999, 80, 1000, DP_IN);
  dp_dma_l2_wait(&two);
  for (uint32_t r = 0; r < 80; r++) CHECK(memcmp(l1 + 400 + r * 999, wide + 5 + r * 1000, 999) == 0);
  dp_dma_l2_wait(&one);
  for (uint32_t r = 0; r < 4; r++) CHECK(memcmp(l1 + r * 100, wide + r * WIDE, 100) == 0);
  /* more commands than places, of handles that take turns, waited for in another order; and back again */
  for (uint32_t i = 0; i < 60; i++) dp_dma_l2(&many[i % 3], l1 + i * 50, wide + i * 61, 10, 5, 12, DP_IN);
  for (uint32_t k = 0; k < 3; k++) {
    dp_dma_l2_wait(&many[2 - k]);
    CHECK(many[2 - k].pending == 0);
    for (uint32_t i = 2 - k; i < 60; i += 3)
      for (uint32_t r = 0; r < 5; r++) CHECK(memcmp(l1 + i * 50 + r * 10, wide + i * 61 + r * 12, 10) == 0);
  }
  for (uint32_t i = 0; i < 3000; i++) l1[i] = value(i);
  for (uint32_t i = 0; i < 20; i++) dp_dma_l2(&one, l1 + i * 100, back + i * 200, 50, 2, 75, DP_OUT);
  dp_dma_l2_wait(&one);
  for (uint32_t i = 0; i < 20; i++)
    for (uint32_t r = 0; r < 2; r++) CHECK(memcmp(l1 + i * 100 + r * 50, back + i * 200 + r * 75, 50) == 0);
  dp_dma_l2(&one, l1, wide, 0, 5, 10, DP_IN); /* nothing */
  CHECK(one.pending == 0);
}

static void l3_transfers(void) {
  dp_dma one, two;
  memset(&one, 0, sizeof one);
  memset(&two, 0, sizeof two);
  memset(back, 0, sizeof back);
  dp_dma_l3_wait(&one);
  dp_dma_l3(&one, wide, l3, 4u * WIDE, 1, 4u * WIDE, DP_OUT);
  dp_dma_l3_wait(&one);
  /* rows that follow each other, whose reads overwrite the begin of the next one: in the order of the commands they come out right */
  for (uint32_t i = 0; i < 30; i++) dp_dma_l3(&one, back + i * 21, l3 + i * 100, 7, 3, 30, DP_IN);
  dp_dma_l3(&two, back + 1000, l3 + 5000, 33, 1, 33, DP_IN);
  dp_dma_l3_wait(&two);
  CHECK(memcmp(back + 1000, wide + 5000, 33) == 0 && two.pending == 0);
  dp_dma_l3_wait(&one);
  for (uint32_t i = 0; i < 30; i++)
    for (uint32_t r = 0; r < 3; r++) CHECK(memcmp(back + i * 21 + r * 7, wide + i * 100 + r * 30, 7) == 0);
  dp_dma_l3(&one, wide + 3, l3 + 11, 5, 4, 9, DP_OUT);
  dp_dma_l3_wait(&one);
}

static int32_t sums[8];

static void kernel(const dp_args *args, const dp_team *team) {
  const int rank = dp_team_rank(team);
  int32_t *partial = (int32_t *)args->scratch, total = 0;
  for (int round = 0; round < 3; round++) {
    partial[rank] = (rank + 1) * (round + 1);
    dp_team_barrier(team);
    for (int i = 0; i < team->cores; i++) total += partial[i];
    dp_team_barrier(team);
  }
  sums[rank] = total;
}

static void control(void *argument) {
  dp_args args;
  CHECK(argument == &failures);
  l2_transfers();
  l3_transfers();
  memset(&args, 0, sizeof args);
  args.scratch = l1;
  for (uint32_t cores = 1; cores <= 8; cores++) {
    memset(sums, 0, sizeof sums);
    dp_fork(cores, kernel, &args);
    for (uint32_t i = 0; i < 8; i++) CHECK(sums[i] == (i < cores ? (int32_t)(cores * (cores + 1) / 2 * 6) : 0));
  }
}

/* Parts of long.hex at odd places, of all lengths around a buffer's; and a file written in parts. */
static void file_parts(void) {
  static const uint32_t lengths[] = {0, 1, 3, 4, 4093, 4096, 4097, 8192};
  for (uint32_t offset = 0; offset < 9; offset++)
    for (uint32_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
      const uint32_t bytes = lengths[k], from = k % 2 ? offset : 9001u - bytes - offset;
      memset(back, 0xEE, 9001);
      CHECK(dp_load_part_to_l2(back + 1, "long.hex", 9001, from, bytes) == 0);
      for (uint32_t i = 0; i < bytes; i++) CHECK(back[1 + i] == (uint8_t)((from + i) % 253u));
      CHECK(back[0] == 0xEE && back[1 + bytes] == 0xEE);
    }
  CHECK(dp_load_part_to_l2(back, "long.hex", 9001, 9000, 2) != 0 && dp_load_part_to_l2(back, "long.hex", 9001, 9002, 0) != 0);
  CHECK(dp_load_part_to_l2(back, "long.hex", 9000, 0, 2) != 0 && dp_load_part_to_l2(back, "long.hex", 9001, 2, 0xFFFFFFFFu) != 0);
  for (uint32_t round = 0; round < 2; round++)
    CHECK(!dp_write_part("made.bin", 0, wide, 5) && !dp_write_part("made.bin", 5, wide + 5, 0) && !dp_write_part("made.bin", 5, wide + 5, 4096));
}

int main(int argc, char **argv) {
  uint8_t small[12], text[8];
  (void)argc, (void)argv;
  for (uint32_t i = 0; i < sizeof wide; i++) wide[i] = value(i);
  l1 = (uint8_t *)dp_arena_l1(L1_BYTES);
  l3 = cl_ram_malloc(4u * WIDE);
  const dp_l3 nothing = dp_arena_l3(0);
  void *const l2 = dp_arena_l2(10);
  CHECK(l1 && l3 && nothing && l2 && ((uintptr_t)l1 & 7u) == 0 && ((uintptr_t)l2 & 7u) == 0);
  CHECK(!dp_arena_l1(1u << 20) && !dp_arena_l2(1u << 24) && !cl_ram_malloc(1u << 30));
  dp_cluster_call(control, &failures);
  /* what the last transfer has written; odd lengths leave what lies behind alone */
  memset(small, 0x11, sizeof small);
  dp_l3_read(small, l3 + 20, 5);
  CHECK(memcmp(small, wide + 8, 5) == 0 && small[5] == 0x11);
  dp_l3_write(l3 + 1, "abc", 3);
  dp_l3_read(small, l3 + 1, 3);
  CHECK(memcmp(small, "abc", 3) == 0);
  CHECK(dp_load_file_to_l2(text, "seven.hex", 7) == 0 && memcmp(text, "0123456", 7) == 0);
  CHECK(dp_load_file_to_l2(text, "seven.hex", 6) != 0 && dp_load_file_to_l2(text, "none.hex", 6) != 0);
  CHECK(load_file_to_ram(l3 + 4, "long.hex", 9001) == 0);
  dp_l3_read(back, l3 + 4, 9001);
  for (uint32_t i = 0; i < 9001; i++) CHECK(back[i] == (uint8_t)(i % 253u));
  file_parts();
  dp_arena_l2_free(l2, 10);
  dp_arena_l3_free(nothing, 0);
  cl_ram_free(l3, 4u * WIDE);
  dp_arena_l1_free(l1, L1_BYTES);
  return failures ? 1 : 0;
}
