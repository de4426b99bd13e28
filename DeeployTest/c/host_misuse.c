/* One misuse of the host runtime per case, chosen by the first argument; every one must be refused. Case "none" is good. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dp_host.h"

static uint8_t array[64];
static dp_dma handle, forgotten;
static uint8_t *l1, *l2, *a, *b;
static dp_l3 l3;

static void kernel_fork(const dp_args *args, const dp_team *team) { (void)team; dp_fork(1, kernel_fork, args); }
static void kernel_dma(const dp_args *args, const dp_team *team) {
  (void)args;
  if (dp_team_rank(team) == 0) dp_dma_l2(&handle, a, b, 8, 1, 8, DP_IN);
}
static void kernel_wrong_team(const dp_args *args, const dp_team *team) {
  (void)args;
  dp_team other = *team;
  other.first = 5;
  dp_team_rank(&other);
}
static void kernel_good(const dp_args *args, const dp_team *team) {
  (void)args;
  for (int i = 0; i < 5; i++) dp_team_barrier(team);
}
/* Two teams with a barrier each in one fork. */
static void kernel_teams(const dp_args *args, const dp_team *team) {
  (void)args;
  dp_team half = *team;
  const int rank = dp_team_rank(team);
  half.cores = 2;
  half.first = (uint8_t)(rank / 2 * 2);
  half.barrier = (uint8_t)(1 + rank / 2);
  for (int i = 0; i < 3 + rank / 2; i++) dp_team_barrier(&half);
  dp_team_barrier(team);
}
static void kernel_deep(const dp_args *args, const dp_team *team) {
  (void)args;
  if (dp_team_rank(team) < 3) dp_team_barrier(team);
}

#if defined(__GNUC__)
__attribute__((no_sanitize_address))
#endif
static uint8_t peek(const uint8_t *at) { return *(const volatile uint8_t *)at; }

/* Three handles with three commands each; prints which commands of the other two are carried out once the first is waited for. */
static void order(void) {
  dp_dma three[3];
  memset(three, 0, sizeof three);
  uint8_t zeros[72] = {0};
  dp_l3_write(l3, zeros, sizeof zeros);
  for (int c = 0; c < 3; c++)
    for (int h = 0; h < 3; h++) dp_dma_l3(&three[h], b + h * 48 + c * 8, l3, 8, 1, 8, DP_IN);
  dp_dma_l3_wait(&three[0]);
  for (int h = 0; h < 3; h++) {
    for (int c = 0; c < 3; c++) putchar(peek(b + h * 48 + c * 8) == 0 ? '1' : '0');
    putchar(h < 2 ? ' ' : '\n');
  }
  for (int h = 1; h < 3; h++) dp_dma_l3_wait(&three[h]);
  exit(0);
}

static void misuse(const char *name) {
#define CASE(text) if (strcmp(name, text) == 0)
  dp_args args;
  memset(&args, 0, sizeof args);
  CASE("outside_arena") dp_open_l1(l1, 4000, 200);
  CASE("unaligned_offset") dp_open_l1(l1, 514, 8);
  CASE("no_arena") dp_open_l1(l1 + 8, 0, 8);
  CASE("overlap") dp_open_l1(l1, 60, 8);
  CASE("close_unknown") dp_close_l1(a + 4, 60);
  CASE("close_length") dp_close_l1(a, 60);
  CASE("close_in_flight") { dp_dma_l2(&handle, a, b, 8, 1, 8, DP_IN); dp_close_l1(a, 64); }
  CASE("free_open") dp_arena_l1_free(l1, 4096);
  CASE("near_outside") dp_dma_l2(&handle, a, b, 65, 1, 65, DP_IN);
  CASE("far_outside") dp_dma_l2(&handle, a, b, 8, 3, 100, DP_IN);
  CASE("wrong_level") dp_dma_l2(&handle, b, a, 8, 1, 8, DP_IN);
  CASE("leaves_array") dp_dma_l2(&handle, a, array + 60, 8, 1, 8, DP_IN);
  CASE("too_long") dp_dma_l2(&handle, l1, l2, 1u << 16, 2, 1u << 16, DP_IN);
  CASE("no_rows") dp_dma_l2(&handle, a, b, 8, 0, 8, DP_IN);
  CASE("rounding") dp_dma_l3(&handle, dp_open_l2(l2, 1024, 70), l3, 69, 1, 69, DP_IN);
  CASE("rounded_rows") dp_dma_l3(&handle, dp_open_l2(l2, 1024, 4), l3, 2, 2, 7, DP_IN);
  CASE("rounded_array") dp_dma_l3(&handle, array, l3, 5, 1, 5, DP_IN);
  CASE("descending") for (int row = 2; row >= 0; row--) dp_dma_l3(&handle, b + 5 * row, l3 + 9 * (unsigned)row, 5, 1, 5, DP_IN);
  CASE("past_end_written") { dp_dma_l3(&forgotten, b + 7, l3, 8, 1, 8, DP_IN); dp_dma_l3(&handle, b, l3, 5, 1, 5, DP_IN); }
  CASE("past_end_read") { dp_dma_l2(&forgotten, a, b + 6, 8, 1, 8, DP_IN); dp_dma_l3(&handle, b, l3, 5, 1, 5, DP_IN); }
  CASE("reads_past_end") { dp_dma_l3(&handle, b, l3, 5, 1, 5, DP_IN); dp_dma_l2(&forgotten, a, b + 7, 8, 1, 8, DP_IN); }
  CASE("reads_spoilt") { dp_dma_l3(&handle, b, l3, 5, 1, 5, DP_IN); dp_dma_l3_wait(&handle); dp_dma_l2(&handle, a, b, 6, 1, 6, DP_IN); }
  CASE("engine_alignment") { dp_host_configure_dma(2, 64, 4, 1); dp_dma_l2(&handle, a + 2, b, 8, 1, 8, DP_IN); }
  CASE("engine_stride") { dp_host_configure_dma(2, 64, 4, 1); dp_dma_l2(&handle, a, b, 8, 2, 10, DP_IN); }
  CASE("engine_bytes") { dp_host_configure_dma(3, 64, 1, 4); dp_dma_l3(&handle, b, l3, 65, 1, 65, DP_IN); }
  CASE("engine_none") dp_host_configure_dma(1, 64, 1, 4);
  CASE("order") order();
  CASE("l3_outside") dp_dma_l3(&handle, b, l3 + 100, 120, 1, 120, DP_IN);
  CASE("two_engines") { dp_dma_l2(&handle, a, b, 8, 1, 8, DP_IN); dp_dma_l3_wait(&handle); }
  CASE("damaged") { dp_dma_l2(&handle, a, b, 8, 1, 8, DP_IN); handle.id++; dp_dma_l2_wait(&handle); }
  CASE("never_waited") dp_dma_l2(&forgotten, a + 40, b + 40, 8, 1, 8, DP_IN);
  CASE("same_bytes") { dp_dma_l2(&handle, a, b, 8, 1, 8, DP_IN); dp_dma_l2(&handle, a + 4, b + 8, 8, 1, 8, DP_IN); }
  CASE("leak") cl_ram_malloc(16);
  CASE("free_length") cl_ram_free(l3, 100);
  CASE("free_twice") { dp_arena_l2_free(l2, 1); }
  CASE("fork_in_kernel") dp_fork(2, kernel_fork, &args);
  CASE("dma_in_kernel") dp_fork(2, kernel_dma, &args);
  CASE("wrong_team") dp_fork(2, kernel_wrong_team, &args);
  CASE("too_many_cores") dp_fork(9, kernel_good, &args);
  CASE("scratch") { args.scratch = a + 4; dp_fork(2, kernel_good, &args); }
  CASE("diverged") dp_fork(4, kernel_deep, &args);
  CASE("configured_twice") dp_host_configure(1, 1, 1, 1);
  CASE("file_too_long") load_file_to_ram(l3, "none", 400);
  CASE("segv") *(volatile int *)0 = 1;
  CASE("endless") for (;;) sleep(1);
  CASE("abort") abort();
  CASE("status") exit(3);
}

int main(int argc, char **argv) {
  int wrong = 0;
  dp_host_configure(4096, 8192, 16384, 8);
  l1 = (uint8_t *)dp_arena_l1(4096);
  l2 = (uint8_t *)dp_arena_l2(4096);
  l3 = cl_ram_malloc(200);
  wrong += dp_arena_l1(4) != NULL;
  wrong += cl_ram_malloc(1u << 20) != 0;
  const dp_l3 empty = cl_ram_malloc(0);
  wrong += empty == 0;
  cl_ram_free(empty, 0);
  a = (uint8_t *)dp_open_l1(l1, 0, 64);
  b = (uint8_t *)dp_open_l2(l2, 128, 200);
  wrong += dp_open_l1(l1, 64, 0) == NULL;
  if (argc > 1) misuse(argv[1]);
  /* rounding: 3 bytes behind a read of 5 are lost, the 9th is not */
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)i;
  dp_l3_write(l3, bytes, 8);
  memset(b, 77, 200);
  dp_dma_l3(&handle, b, l3, 5, 1, 5, DP_IN);
  dp_dma_l3_wait(&handle);
  wrong += memcmp(b, bytes, 5) != 0 || b[5] == 77 || b[7] == 77 || b[8] != 77;
  /* rows packed in ascending order come right, whatever their order in L3; bytes past an end may be read once they are written again */
  for (int row = 0; row < 3; row++) dp_dma_l3(&handle, b + 3 * row, l3 + 5 - 2 * (unsigned)row, 3, 1, 3, DP_IN);
  dp_dma_l3_wait(&handle);
  for (int i = 0; i < 9; i++) wrong += b[i] != 5 - i / 3 * 2 + i % 3;
  dp_dma_l3(&handle, b + 9, l3, 3, 1, 3, DP_IN);
  dp_dma_l3_wait(&handle);
  dp_dma_l2(&handle, a, b, 12, 1, 12, DP_IN);
  dp_dma_l2_wait(&handle);
  wrong += memcmp(a, b, 12) != 0;
  /* rows: every second byte of 8 to the front of an array */
  dp_dma_l2(&handle, a, array, 4, 1, 4, DP_IN);
  dp_dma_l2_wait(&handle);
  for (int i = 0; i < 8; i++) a[i] = (uint8_t)(40 + i);
  dp_dma_l2(&handle, a, array, 2, 4, 16, DP_OUT);
  dp_dma_l2_wait(&handle);
  for (int i = 0; i < 8; i++) wrong += array[i / 2 * 16 + i % 2] != 40 + i;
  dp_args args;
  memset(&args, 0, sizeof args);
  for (uint32_t cores = 1; cores <= 8; cores++) dp_fork(cores, kernel_good, &args);
  dp_fork(4, kernel_teams, &args);
  if (forgotten.pending == 0) dp_close_l1(a, 64);
  if (forgotten.pending == 0) dp_close_l2(b, 200);
  if (forgotten.pending == 0) {
    dp_arena_l1_free(l1, 4096);
    dp_arena_l2_free(l2, 4096);
  }
  cl_ram_free(l3, 200);
  dp_host_finish();
  printf("%s\n", wrong ? "FAIL" : "PASS");
  dp_host_report(stdout);
  return wrong;
}
