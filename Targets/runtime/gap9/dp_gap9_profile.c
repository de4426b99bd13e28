/* Measuring. In builds with DP_PROFILE a record per step, kept in memory for DP_STEP_RECORDS steps and left in the file steps.bin at the end;
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

static PI_L2 struct {
  dp_gap9_counters at_begin;
  uint32_t begin, steps;
  record list[DP_STEP_RECORDS];
} profile;

void dp_step_begin(uint32_t step) {
  (void)step;
  profile.at_begin = dp_gap9_count;
  profile.begin = dp_gap9_now();
}

void dp_step_end(uint32_t step) {
  const uint32_t cycles = dp_gap9_now() - profile.begin;
  if (profile.steps < DP_STEP_RECORDS) {
    record *r = &profile.list[profile.steps];
    const uint32_t *now = (const uint32_t *)&dp_gap9_count, *then = (const uint32_t *)&profile.at_begin;
    uint32_t *gained = (uint32_t *)&r->gained;
    r->step = step;
    r->cycles = cycles;
    for (uint32_t i = 0; i < sizeof r->gained / sizeof *now; i++) gained[i] = now[i] - then[i];
  }
  profile.steps++;
}

static uint32_t write_steps(void) {
  const uint32_t kept = profile.steps < DP_STEP_RECORDS ? profile.steps : DP_STEP_RECORDS;
  dp_write_part("steps.bin", 0, profile.list, kept * (uint32_t)sizeof(record));
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
  printf("\"cycles\": %lu, \"compute\": %lu, \"wait_l2\": %lu, \"wait_l3\": %lu, \"status\": %d}\n", U(dp_gap9_cycles), U(c->compute),
         U(c->wait_l2), U(c->wait_l3), status);
}
