/* A small program as generated code is written, for the tests of the host runtime: two steps, tiled and double-buffered.
 *   step 0: y[i][j] = 3 x[i][j] + w[j]       x at home in L3, y in L2, w an array of the program
 *   step 1: s[i] = sum over j of y[i][j]     the reduction is split over tiles and, inside a tile, over cores
 * -DFAULT=n puts in one of the classic faults; 0 is correct. Prints PASS or FAIL and the counters.
 */
#include <stdio.h>

#include "dp_host.h"
#include "dp_tile.h"

#ifndef FAULT
#define FAULT 0
#endif
enum {
  CORRECT, MISSING_WAIT, SOURCE_REUSED, LIVE_PREFETCH, STORE_BEFORE_BARRIER, OFF_BY_ONE, OVERLAPPING_CORES, UNSYNCHRONISED, OVERFLOW,
  MISALIGNED, SKIPPED_BARRIER
};

#define ROWS 37
#define COLS 53
#define CORES 8
#define L1_BYTES 12000

static int8_t w[COLS];

/* ---- kernels ------------------------------------------------------------------------------------------------------------------- */

/* axes i, j; operands x, w, y */
static void scale(const dp_args *a, const dp_team *team) {
  const dp_tile *x = &a->t[0], *v = &a->t[1], *y = &a->t[2];
  const int8_t *px = (const int8_t *)x->ptr, *pv = (const int8_t *)v->ptr;
  int32_t *py = (int32_t *)y->ptr;
  int32_t begin, end;
  const int32_t total = a->n[0] * a->n[1];
  dp_share(team, total, &begin, &end);
  if (FAULT == OVERLAPPING_CORES && end < total) end++;
  for (int32_t k = begin; k < end; k++) {
    const int32_t i = k / a->n[1], j = k % a->n[1];
    int32_t value = 3 * px[i * x->str[0] + j * x->str[1]] + pv[j * v->str[0]];
    if (FAULT == OVERFLOW) value = (value * 8000000) >> 20;
    py[i * y->str[0] + j * y->str[1]] = value;
  }
  if (FAULT == OFF_BY_ONE && end == total && begin < end) py[total] = 1;
}

/* axes i, j (reduced); operands y, s; scratch: one int32 per core and row */
static void row_sum(const dp_args *a, const dp_team *team) {
  const dp_tile *y = &a->t[0], *s = &a->t[1];
  const int32_t *py = (const int32_t *)y->ptr;
  int32_t *part = (int32_t *)a->scratch, *acc = (int32_t *)a->acc, *ps = (int32_t *)s->ptr;
  int32_t begin, end;
  dp_share(team, a->n[1], &begin, &end);
  for (int32_t i = 0; i < a->n[0]; i++) {
    int32_t sum = 0;
    for (int32_t j = begin; j < end; j++) sum += py[i * y->str[0] + j * y->str[1]];
    part[i * team->cores + dp_team_rank(team)] = sum;
  }
  if (FAULT == UNSYNCHRONISED) part[a->n[0] * team->cores]++;
  if (FAULT == MISALIGNED) part[a->n[0] * team->cores] = *(const volatile int32_t *)(const void *)((const int8_t *)a->t[0].ptr + 1);
  if (!(FAULT == SKIPPED_BARRIER && dp_team_rank(team) == 3)) dp_team_barrier(team);
  dp_share(team, a->n[0], &begin, &end);
  for (int32_t i = begin; i < end; i++) {
    int32_t sum = a->first ? 0 : acc[i];
    for (int32_t c = 0; c < team->cores; c++) sum += part[i * team->cores + c];
    if (a->last)
      ps[i * s->str[0]] = sum;
    else
      acc[i] = sum;
  }
}

/* ---- step 0 -------------------------------------------------------------------------------------------------------------------- */

static const dp_axis s0_axis[] = {{ROWS, 16, 5, 0}, {COLS, 53, 21, 0}};
static const dp_space s0_space = {s0_axis, 2, {0, 1}};
static const dp_term s0_term[] = {{0, 1}, {1, 1}};
static const dp_dim s0_x_dim[] = {{ROWS, COLS, 0, 1, 0, 1}, {COLS, 1, 0, 1, 1, 1}};
static const dp_operand s0_x = {s0_x_dim, s0_term, 2, 1, 3, {0, 1}};
static const dp_dim s0_w_dim[] = {{COLS, 1, 0, 1, 1, 1}};
static const dp_operand s0_w = {s0_w_dim, s0_term, 1, 1, 2, {0}};
static const dp_dim s0_y_dim[] = {{ROWS, COLS, 0, 1, 0, 1}, {COLS, 1, 0, 1, 1, 1}};
static const dp_operand s0_y = {s0_y_dim, s0_term, 2, 4, 3, {0, 1}};
enum { S0_X = 108, S0_W = 24, S0_Y = 420, S0_X_L2 = 848 };

typedef struct net {
  uint8_t *l1, *l2;
  dp_l3 x;
  int32_t *y, *s;
} net;

static void s0_inner(net *n, const dp_box *outer, const dp_source *x_source) {
  void *x[2], *v[2], *y[2];
  dp_dma in[2] = {{0, 0, NULL}, {0, 0, NULL}}, out[2] = {{0, 0, NULL}, {0, 0, NULL}};
  dp_source w_source, y_source;
  dp_box box, next;
  dp_region region;
  dp_args args = {};
  for (unsigned b = 0; b < 2; b++) {
    x[b] = dp_open_l1(n->l1, b * S0_X, S0_X);
    v[b] = dp_open_l1(n->l1, 2 * S0_X + b * S0_W, S0_W);
    y[b] = dp_open_l1(n->l1, 2 * S0_X + 2 * S0_W + b * S0_Y, S0_Y);
  }
  dp_source_storage(&w_source, &s0_w, (uintptr_t)w);
  dp_source_storage(&y_source, &s0_y, (uintptr_t)n->y);
  dp_box_first(&box, &s0_space, outer, DP_INNER);
  dp_region_of(&region, &s0_x, &box);
  dp_move_l2(&in[0], &s0_x, &region, x[0], x_source, DP_IN);
  dp_region_of(&region, &s0_w, &box);
  dp_move_l2(&in[0], &s0_w, &region, v[0], &w_source, DP_IN);
  for (unsigned now = 0, more = 1; more; now ^= 1) {
    next = box;
    more = (unsigned)dp_box_next(&next, &s0_space, outer, DP_INNER);
    if (more) {
      const unsigned other = FAULT == LIVE_PREFETCH ? now : now ^ 1;
      dp_region_of(&region, &s0_x, &next);
      dp_move_l2(&in[now ^ 1], &s0_x, &region, x[other], x_source, DP_IN);
      dp_region_of(&region, &s0_w, &next);
      dp_move_l2(&in[now ^ 1], &s0_w, &region, v[now ^ 1], &w_source, DP_IN);
    }
    if (FAULT != MISSING_WAIT) dp_dma_l2_wait(&in[now]);
    if (FAULT != SOURCE_REUSED) dp_dma_l2_wait(&out[now]);
    for (int a = 0; a < 2; a++) {
      args.n[a] = box.n[a];
      args.lo[a] = box.lo[a];
    }
    args.first = args.last = 1;
    dp_region_of(&region, &s0_x, &box);
    dp_tile_of(&args.t[0], &s0_x, &region, x[now]);
    dp_region_of(&region, &s0_w, &box);
    dp_tile_of(&args.t[1], &s0_w, &region, v[now]);
    dp_region_of(&region, &s0_y, &box);
    dp_tile_of(&args.t[2], &s0_y, &region, y[now]);
    if (FAULT == STORE_BEFORE_BARRIER) dp_move_l2(&out[now], &s0_y, &region, y[now], &y_source, DP_OUT);
    dp_fork(CORES, scale, &args);
    if (FAULT != STORE_BEFORE_BARRIER) dp_move_l2(&out[now], &s0_y, &region, y[now], &y_source, DP_OUT);
    if (FAULT == MISSING_WAIT) dp_dma_l2_wait(&in[now]);
    box = next;
  }
  for (unsigned b = 0; b < 2; b++) dp_dma_l2_wait(&out[b]);
  for (unsigned b = 0; b < 2; b++) {
    dp_close_l1(x[b], S0_X);
    dp_close_l1(v[b], S0_W);
    dp_close_l1(y[b], S0_Y);
  }
}

static void s0(net *n) {
  void *x[2];
  dp_dma in[2] = {{0, 0, NULL}, {0, 0, NULL}};
  dp_source far_source, x_source;
  dp_box box, next;
  dp_region region;
  for (unsigned b = 0; b < 2; b++) x[b] = dp_open_l2(n->l2, b * S0_X_L2, S0_X_L2);
  dp_source_storage(&far_source, &s0_x, n->x);
  dp_box_first(&box, &s0_space, NULL, DP_OUTER);
  dp_region_of(&region, &s0_x, &box);
  dp_move_l3(&in[0], &s0_x, &region, x[0], &far_source, DP_IN);
  for (unsigned now = 0, more = 1; more; now ^= 1) {
    next = box;
    more = (unsigned)dp_box_next(&next, &s0_space, NULL, DP_OUTER);
    if (more) {
      dp_region_of(&region, &s0_x, &next);
      dp_move_l3(&in[now ^ 1], &s0_x, &region, x[now ^ 1], &far_source, DP_IN);
    }
    dp_dma_l3_wait(&in[now]);
    dp_region_of(&region, &s0_x, &box);
    dp_source_tile(&x_source, &s0_x, &region, (uintptr_t)x[now]);
    s0_inner(n, &box, &x_source);
    box = next;
  }
  for (unsigned b = 0; b < 2; b++) dp_close_l2(x[b], S0_X_L2);
}

/* ---- step 1 -------------------------------------------------------------------------------------------------------------------- */

static const dp_axis s1_axis[] = {{ROWS, ROWS, 10, 0}, {COLS, COLS, 20, 1}};
static const dp_space s1_space = {s1_axis, 2, {0, 1}};
static const dp_dim s1_s_dim[] = {{ROWS, 1, 0, 1, 0, 1}};
static const dp_operand s1_s = {s1_s_dim, s0_term, 1, 4, 1, {0}};
enum { S1_Y = 800, S1_S = 40, S1_ACC = 40, S1_SCRATCH = 10 * CORES * 4 + 8 };

static void s1(net *n) {
  uint32_t at = 0;
  void *y[2], *s, *acc, *scratch;
  dp_dma in[2] = {{0, 0, NULL}, {0, 0, NULL}}, out = {0, 0, NULL};
  dp_source y_source, s_source;
  dp_box box, next;
  dp_region region;
  dp_args args = {};
  for (unsigned b = 0; b < 2; b++, at += S1_Y) y[b] = dp_open_l1(n->l1, at, S1_Y);
  scratch = dp_open_l1(n->l1, at, S1_SCRATCH);
  s = dp_open_l1(n->l1, at + S1_SCRATCH, S1_S);
  acc = dp_open_l1(n->l1, at + S1_SCRATCH + S1_S, S1_ACC);
  dp_source_storage(&y_source, &s0_y, (uintptr_t)n->y);
  dp_source_storage(&s_source, &s1_s, (uintptr_t)n->s);
  dp_box_first(&box, &s1_space, NULL, DP_INNER);
  dp_region_of(&region, &s0_y, &box);
  dp_move_l2(&in[0], &s0_y, &region, y[0], &y_source, DP_IN);
  for (unsigned now = 0, more = 1; more; now ^= 1) {
    next = box;
    more = (unsigned)dp_box_next(&next, &s1_space, NULL, DP_INNER);
    if (more) {
      dp_region_of(&region, &s0_y, &next);
      dp_move_l2(&in[now ^ 1], &s0_y, &region, y[now ^ 1], &y_source, DP_IN);
    }
    dp_dma_l2_wait(&in[now]);
    dp_dma_l2_wait(&out);
    for (int a = 0; a < 2; a++) {
      args.n[a] = box.n[a];
      args.lo[a] = box.lo[a];
    }
    dp_region_of(&region, &s0_y, &box);
    dp_tile_of(&args.t[0], &s0_y, &region, y[now]);
    dp_region_of(&region, &s1_s, &box);
    dp_tile_of(&args.t[1], &s1_s, &region, s);
    args.first = (uint8_t)dp_first(&s1_space, &box);
    args.last = (uint8_t)dp_last(&s1_space, &box);
    args.acc = acc;
    args.scratch = scratch;
    dp_fork(CORES, row_sum, &args);
    if (args.last) dp_move_l2(&out, &s1_s, &region, s, &s_source, DP_OUT);
    box = next;
  }
  dp_dma_l2_wait(&out);
  dp_close_l1(acc, S1_ACC);
  dp_close_l1(s, S1_S);
  dp_close_l1(scratch, S1_SCRATCH);
  for (unsigned b = 0; b < 2; b++) dp_close_l1(y[b], S1_Y);
}

/* ---- main ---------------------------------------------------------------------------------------------------------------------- */

static void run(void *argument) {
  net *n = (net *)argument;
  n->l1 = (uint8_t *)dp_arena_l1(L1_BYTES);
  dp_step_begin(0);
  s0(n);
  dp_step_end(0);
  dp_step_begin(1);
  s1(n);
  dp_step_end(1);
  dp_arena_l1_free(n->l1, L1_BYTES);
}

enum { TILES = 2 * S0_X_L2, Y_BYTES = ROWS * COLS * 4, S_BYTES = ROWS * 4, L2_BYTES = TILES + Y_BYTES + S_BYTES };

int main(void) {
  net n;
  int wrong = 0;
  dp_host_configure(L1_BYTES, 65536, 1u << 20, CORES);
  n.l2 = (uint8_t *)dp_arena_l2(L2_BYTES);
  n.x = cl_ram_malloc(ROWS * COLS);
  n.y = (int32_t *)dp_open_l2(n.l2, TILES, Y_BYTES);
  n.s = (int32_t *)dp_open_l2(n.l2, TILES + Y_BYTES, S_BYTES);
  int8_t *x = (int8_t *)dp_host_l3_pointer(n.x);
  for (int k = 0; k < ROWS * COLS; k++) x[k] = (int8_t)(k * 37 % 251 - 125);
  for (int j = 0; j < COLS; j++) w[j] = (int8_t)(j * 11 % 101 - 50);
  for (int round = 0; round < 2; round++) {
    dp_cluster_call(run, &n);
    for (int i = 0; i < ROWS; i++) {
      int32_t sum = 0;
      for (int j = 0; j < COLS; j++) {
        const int32_t value = 3 * x[i * COLS + j] + w[j];
        wrong += n.y[i * COLS + j] != value;
        sum += value;
      }
      wrong += n.s[i] != sum;
    }
  }
  dp_close_l2(n.y, Y_BYTES);
  dp_close_l2(n.s, S_BYTES);
  dp_arena_l2_free(n.l2, L2_BYTES);
  cl_ram_free(n.x, ROWS * COLS);
  dp_host_finish();
  printf("%s\n", wrong ? "FAIL" : "PASS");
  dp_host_report(stdout);
  return wrong ? 1 : 0;
}
