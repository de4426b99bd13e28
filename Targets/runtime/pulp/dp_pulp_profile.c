/* Measuring, in builds with DP_PROFILE: a record per step, left in the file steps.bin, and the totals as one line on the console. */
#include <stdio.h>

#include "dp_pulp.h"

#ifdef DP_PROFILE
/* Record of a step, little-endian: its number, its cycles, and what the counters have gained. Written while no time passes. */
typedef struct record {
  uint32_t step, cycles;
  dp_pulp_counters gained;
} record;

static DP_L1_DATA struct {
  dp_pulp_counters at_begin;
  uint32_t begin, steps;
  int32_t file; /* handle of steps.bin plus 1; 0: not open, negative: cannot be written */
} profile;

void dp_step_begin(uint32_t step) {
  (void)step;
  profile.at_begin = dp_pulp_count;
  profile.begin = dp_now();
}

void dp_step_end(uint32_t step) {
  const uint32_t cycles = dp_now() - profile.begin;
  const uint32_t *now = (const uint32_t *)&dp_pulp_count, *then = (const uint32_t *)&profile.at_begin;
  record r;
  uint32_t *gained = (uint32_t *)&r.gained;
  r.step = step;
  r.cycles = cycles;
  for (uint32_t i = 0; i < sizeof r.gained / sizeof *now; i++) gained[i] = now[i] - then[i];
  profile.steps++;
  if (profile.file == 0) {
    profile.file = dp_pulp_file_open("steps.bin", 0) + 1;
    if (profile.file == 0) profile.file = -1;
  }
  if (profile.file > 0) dp_pulp_file_write(profile.file - 1, &r, sizeof r);
}

static uint32_t dp_profile_end(void) {
  if (profile.file > 0) dp_pulp_file_close(profile.file - 1);
  profile.file = 0;
  return profile.steps;
}
#else
static uint32_t dp_profile_end(void) { return 0; }
#endif

#define U(x) ((unsigned long)(x))
void dp_pulp_report(void) {
  const dp_pulp_counters *c = &dp_pulp_count;
  const dp_pulp_loads *l = &dp_pulp_loaded;
  const uint32_t steps = dp_profile_end();
  printf("{\"traffic\": {\"l3_to_l2\": %lu, \"l2_to_l3\": %lu, \"l2_to_l1\": %lu, \"l1_to_l2\": %lu}, ", U(c->l3_to_l2), U(c->l2_to_l3),
         U(c->l2_to_l1), U(c->l1_to_l2));
  printf("\"l3\": {\"allocations\": %lu, \"bytes\": %lu, \"files\": %lu, \"file_bytes\": %lu}, ", U(l->allocations), U(l->bytes), U(l->files),
         U(l->file_bytes));
  printf("\"l2\": {\"files\": %lu, \"file_bytes\": %lu}, \"forks\": %lu, \"steps\": %lu, ", U(l->l2_files), U(l->l2_file_bytes), U(c->forks),
         U(steps));
  printf("\"cycles\": %lu, \"compute\": %lu, \"fork_join\": %lu, \"wait_l2\": %lu, \"wait_l3\": %lu, ", U(dp_pulp_cycles), U(c->compute),
         U(c->fork_join), U(c->wait_l2), U(c->wait_l3));
  printf("\"stack_free\": {\"worker\": %lu, \"controller\": %lu}}\n", U(dp_pulp_stack_free(0)), U(dp_pulp_stack_free(DP_CONTROLLER)));
}
