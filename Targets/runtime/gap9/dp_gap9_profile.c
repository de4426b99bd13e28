/* Measuring. In builds with DP_PROFILE a record per step, for DP_STEP_RECORDS steps, left in the file steps.bin at the end;
 * in all builds the totals as one line on the console, as the bare chip's runtime prints them. */
#include <stdio.h>

#include "dp_files.h"
#include "dp_gap9.h"

#ifdef DP_PROFILE
#ifndef DP_STEP_RECORDS
#define DP_STEP_RECORDS 256
#endif

/* Record of a step, little-endian: its number, its cycles, and what the counters have gained. */
typedef struct record {
  uint32_t step, cycles;
  dp_gap9_counters gained;
} record;

/* Sums over the runs of each step. */
static PI_L2 struct {
  dp_gap9_counters at_begin;
  uint32_t begin, steps;
  struct {
    uint32_t runs;
    record sum;
  } list[DP_STEP_RECORDS];
} profile;

void dp_step_begin(uint32_t step) {
  (void)step;
  profile.at_begin = dp_gap9_count;
  profile.begin = dp_gap9_now();
}

void dp_step_end(uint32_t step) {
  const uint32_t cycles = dp_gap9_now() - profile.begin;
  if (step < DP_STEP_RECORDS) {
    record *r = &profile.list[step].sum;
    const uint32_t *now = (const uint32_t *)&dp_gap9_count, *then = (const uint32_t *)&profile.at_begin;
    uint32_t *gained = (uint32_t *)&r->gained;
    profile.list[step].runs++;
    r->cycles += cycles;
    for (uint32_t i = 0; i < sizeof r->gained / sizeof *now; i++) gained[i] += now[i] - then[i];
  }
  profile.steps++;
}

/* One record per run: the mean of the step's runs. */
static uint32_t write_steps(void) {
  uint32_t at = 0;
  for (uint32_t step = 0; step < DP_STEP_RECORDS; step++) {
    const uint32_t runs = profile.list[step].runs;
    record mean = profile.list[step].sum;
    uint32_t *gained = (uint32_t *)&mean.gained;
    mean.step = step;
    mean.cycles /= runs ? runs : 1u;
    for (uint32_t i = 0; i < sizeof mean.gained / sizeof *gained; i++) gained[i] /= runs ? runs : 1u;
    for (uint32_t k = 0; k < runs; k++, at += (uint32_t)sizeof mean) dp_write_part("steps.bin", at, &mean, (uint32_t)sizeof mean);
  }
  return profile.steps;
}
#else
static uint32_t write_steps(void) { return 0; }
#endif

#define U(x) ((unsigned long)(x))
void dp_gap9_report(int status) {
  const dp_gap9_counters *c = &dp_gap9_count;
  const dp_gap9_loads *l = &dp_gap9_loaded;
  const uint32_t steps = write_steps();
  printf("{\"traffic\": {\"l3_to_l2\": %lu, \"l2_to_l3\": %lu, \"l2_to_l1\": %lu, \"l1_to_l2\": %lu}, ", U(c->l3_to_l2), U(c->l2_to_l3),
         U(c->l2_to_l1), U(c->l1_to_l2));
  printf("\"l3\": {\"allocations\": %lu, \"bytes\": %lu, \"files\": %lu, \"file_bytes\": %lu}, ", U(l->allocations), U(l->bytes), U(l->files),
         U(l->file_bytes));
  printf("\"l2\": {\"files\": %lu, \"file_bytes\": %lu}, \"forks\": %lu, \"steps\": %lu, ", U(l->l2_files), U(l->l2_file_bytes), U(c->forks),
         U(steps));
  printf("\"cycles\": %lu, \"compute\": %lu, \"fork_join\": %lu, \"wait_l2\": %lu, \"wait_l3\": %lu, \"status\": %d}\n", U(dp_gap9_cycles),
         U(c->compute), U(c->fork_join), U(c->wait_l2), U(c->wait_l3), status);
}
