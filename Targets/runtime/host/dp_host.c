/* The host runtime: cores as cooperative fibers in a seeded order, steps, counters, and the end of a run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "dp_host_internal.h"

#define STACK_BYTES (256u * 1024u)
#define GUARD_BYTES 4096u
#define BARRIERS 256

dp_host_state dp_host;
const char *const dp_level_name[DP_LEVELS] = {"L1", "L2", "L3"};

void dp_host_die(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fflush(stdout);
  fputs("HOSTRT: ", stderr);
  vfprintf(stderr, format, list);
  if (dp_host.step_open) fprintf(stderr, " [step %u]", dp_host.step);
  fputs("\n", stderr);
  fflush(stderr);
  va_end(list);
  _exit(DP_HOST_FAILED);
}

void dp_host_start(void) {
  static const char *const names[] = {"none", "lazy", "eager", "tsan"};
  if (dp_host.configured) return;
  dp_host.configured = 1;
  if (dp_host.cores == 0) { /* dp_host_configure was not called */
    dp_host.size[DP_L1] = 131072u;
    dp_host.size[DP_L2] = 1572864u;
    dp_host.size[DP_L3] = 33554432u;
    dp_host.cores = 8;
  }
  const char *check = getenv("DP_HOST_CHECK"), *seed = getenv("DP_HOST_SEED");
  int found = check == NULL;
  for (int i = 0; check && i < 4; i++)
    if (strcmp(check, names[i]) == 0) {
      dp_host.check = (dp_check)i;
      found = 1;
    }
  if (!found) dp_host_die("DP_HOST_CHECK=%s is none of none, lazy, eager, tsan", check);
#ifdef DP_HOST_TSAN
  dp_host.check = DP_CHECK_TSAN; /* the only check that this build is for */
#else
  if (dp_host.check == DP_CHECK_TSAN) dp_host_die("the check tsan needs a build with ThreadSanitizer");
#endif
  dp_host.random = seed ? (uint32_t)strtoul(seed, NULL, 10) : 1u;
  dp_memory_start();
}

void dp_host_configure(uint32_t l1, uint32_t l2, uint32_t l3, uint32_t cores) {
  if (dp_host.configured) dp_host_die("dp_host_configure must come before anything else");
  if (cores < 1 || cores > DP_HOST_CORES) dp_host_die("%u cores asked for, 1 to %u can be simulated", cores, (unsigned)DP_HOST_CORES);
  dp_host.size[DP_L1] = l1;
  dp_host.size[DP_L2] = l2;
  dp_host.size[DP_L3] = l3;
  dp_host.cores = cores;
  dp_host_start();
}

/* ---- cores --------------------------------------------------------------------------------------------------------------------- */

typedef enum dp_core_state { CORE_READY, CORE_WAITING, CORE_DONE } dp_core_state;

typedef struct dp_core {
  ucontext_t context;
  uint8_t *stack;
  dp_core_state state;
  unsigned barrier;  /* where it waits */
  uint32_t barriers; /* passed in this fork */
  void *fake_stack;
  void *fiber;
} dp_core;

static dp_core core[DP_HOST_CORES];
static ucontext_t controller;
static int self;       /* the running core */
static uint64_t forks; /* in all */
static unsigned arrived[BARRIERS], generation[BARRIERS];
static struct {
  dp_kernel kernel;
  const dp_args *args;
  dp_team team;
} job;

#ifdef DP_HOST_ASAN
static void *controller_fake_stack;
static const void *controller_stack;
static size_t controller_stack_bytes;
#endif
#ifdef DP_HOST_TSAN
static void *controller_fiber;
static char sync_fork, sync_join, sync_barrier[BARRIERS][2];
#endif

uint32_t dp_host_random(void) {
  dp_host.random = dp_host.random * 1664525u + 1013904223u;
  return dp_host.random >> 8;
}

/* From a core to the controller's scheduler; returns when the core is resumed. */
static void core_leave(int ends) {
  dp_core *me = &core[self];
#ifdef DP_HOST_ASAN
  __sanitizer_start_switch_fiber(ends ? NULL : &me->fake_stack, controller_stack, controller_stack_bytes);
#endif
#ifdef DP_HOST_TSAN
  __tsan_switch_to_fiber(controller_fiber, DP_NO_SYNC);
#endif
  (void)ends;
  swapcontext(&me->context, &controller);
#ifdef DP_HOST_ASAN
  __sanitizer_finish_switch_fiber(me->fake_stack, NULL, NULL);
#endif
}

static void core_entry(void) {
#ifdef DP_HOST_ASAN
  __sanitizer_finish_switch_fiber(NULL, &controller_stack, &controller_stack_bytes);
#endif
#ifdef DP_HOST_TSAN
  __tsan_acquire(&sync_fork);
#endif
  job.kernel(job.args, &job.team);
#ifdef DP_HOST_TSAN
  __tsan_release(&sync_join);
#endif
  core[self].state = CORE_DONE;
  core_leave(1);
}

/* From the controller to a core; returns when it waits or has ended. */
static void core_resume(int i) {
  self = i;
#ifdef DP_HOST_ASAN
  __sanitizer_start_switch_fiber(&controller_fake_stack, core[i].stack, STACK_BYTES);
#endif
#ifdef DP_HOST_TSAN
  __tsan_switch_to_fiber(core[i].fiber, DP_NO_SYNC);
#endif
  swapcontext(&controller, &core[i].context);
#ifdef DP_HOST_ASAN
  __sanitizer_finish_switch_fiber(controller_fake_stack, NULL, NULL);
#endif
}

static void core_prepare(int i) {
  dp_core *c = &core[i];
  if (!c->stack) {
    uint8_t *map = (uint8_t *)mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map, GUARD_BYTES, PROT_NONE) != 0) dp_host_die("no memory for the stacks of the cores");
    c->stack = map + GUARD_BYTES;
  }
#ifdef DP_HOST_TSAN
  if (!c->fiber) {
    char name[16];
    snprintf(name, sizeof name, "core %d", i);
    c->fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(c->fiber, name);
  }
#endif
  DP_UNPOISON(c->stack, STACK_BYTES);
  getcontext(&c->context);
  c->context.uc_stack.ss_sp = c->stack;
  c->context.uc_stack.ss_size = STACK_BYTES;
  c->context.uc_link = NULL;
  makecontext(&c->context, core_entry, 0);
  c->state = CORE_READY;
  c->barriers = 0;
}

static void diverged(uint32_t cores) {
  char text[DP_HOST_CORES * 24];
  size_t at = 0;
  for (uint32_t i = 0; i < cores; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, " %u:%s after %u", i, core[i].state == CORE_DONE ? "returned" : "waits",
                           core[i].barriers);
  dp_host_die("barrier divergence: cores that never meet, with the barriers that each passed:%s", text);
}

/* What counts is the planned address: buffers that are laid apart are aligned better than they will be on the chip. */
static void check_scratch(uintptr_t scratch) {
  const dp_buffer *buffer = dp_find_buffer(DP_L1, scratch, 1);
  const uintptr_t planned = buffer ? buffer->planned + (scratch - buffer->at) : scratch;
  if ((planned & 7u) != 0) dp_host_die("scratch at planned address %#lx is not aligned to 8 bytes", (unsigned long)planned);
}

void dp_fork(uint32_t cores, dp_kernel kernel, const dp_args *args) {
  dp_host_start();
  if (dp_host.in_fork) dp_host_die("dp_fork inside a kernel");
  if (cores < 1 || cores > dp_host.cores) dp_host_die("fork on %u cores, the cluster has %u", cores, dp_host.cores);
  if (args) check_scratch((uintptr_t)args->scratch);
  job.kernel = kernel;
  job.args = args;
  job.team.first = 0;
  job.team.cores = (uint8_t)cores;
  job.team.barrier = 0;
  memset(arrived, 0, sizeof arrived);
  for (uint32_t i = 0; i < cores; i++) core_prepare((int)i);
#ifdef DP_HOST_TSAN
  controller_fiber = __tsan_get_current_fiber();
  __tsan_release(&sync_fork);
#endif
  dp_host.in_fork = 1;
  dp_host.count.forks++;
  forks++;
  for (uint32_t done = 0; done < cores;) {
    const uint32_t start = dp_host_random() % cores, backwards = dp_host_random() & 1u;
    uint32_t ran = 0;
    for (uint32_t k = 0; k < cores; k++) {
      const uint32_t turn = (k + start) % cores, i = backwards ? cores - 1 - turn : turn;
      if (core[i].state != CORE_READY) continue;
      core_resume((int)i);
      ran++;
      if (core[i].state == CORE_DONE) done++;
    }
    if (!ran) diverged(cores);
  }
  dp_host.in_fork = 0;
#ifdef DP_HOST_TSAN
  __tsan_acquire(&sync_join);
#endif
}

uint64_t dp_host_phase(int *running) {
  *running = self;
  return dp_host.in_fork ? forks << 32 | core[self].barriers : 0;
}

int dp_team_rank(const dp_team *team) {
  if (!dp_host.in_fork) dp_host_die("dp_team_rank outside a kernel");
  const int rank = self - team->first;
  if (rank < 0 || rank >= team->cores) dp_host_die("core %d is not in the team of cores %u to %u", self, team->first, team->first + team->cores - 1u);
  return rank;
}

void dp_team_barrier(const dp_team *team) {
  const unsigned b = team->barrier;
  (void)dp_team_rank(team);
  dp_host.count.barriers += self == team->first;
  if (team->cores > 1) {
#ifdef DP_HOST_TSAN
    const unsigned parity = generation[b] & 1u;
    __tsan_release(&sync_barrier[b][parity]);
#endif
    core[self].state = CORE_WAITING;
    core[self].barrier = b;
    if (++arrived[b] == team->cores) {
      arrived[b] = 0;
      generation[b]++;
      for (unsigned i = team->first; i < (unsigned)team->first + team->cores; i++)
        if (core[i].state == CORE_WAITING && core[i].barrier == b) core[i].state = CORE_READY;
    }
    core_leave(0);
#ifdef DP_HOST_TSAN
    __tsan_acquire(&sync_barrier[b][parity]);
#endif
  }
  core[self].barriers++;
}

void dp_cluster_call(void (*entry)(void *), void *argument) {
  dp_host_start();
  if (dp_host.in_fork) dp_host_die("dp_cluster_call inside a kernel");
  entry(argument);
}

/* ---- steps, counters, end ------------------------------------------------------------------------------------------------------ */

static void (*step_begin)(uint32_t), (*step_end)(uint32_t);

void dp_host_on_step(void (*begin)(uint32_t), void (*end)(uint32_t)) {
  step_begin = begin;
  step_end = end;
}

void dp_step_begin(uint32_t step) {
  dp_host.step = step;
  dp_host.step_open = 1;
  dp_host.count.steps++;
  if (step_begin) step_begin(step);
}

void dp_step_end(uint32_t step) {
  if (step_end) step_end(step);
  dp_host.step_open = 0;
}

void *dp_host_l3_pointer(dp_l3 address) { return (void *)address; }

const dp_host_counters *dp_host_count(void) { return &dp_host.count; }

void dp_host_reset_traffic(void) {
  dp_host_counters *c = &dp_host.count;
  c->l3_to_l2 = c->l2_to_l3 = c->l2_to_l1 = c->l1_to_l2 = 0;
  c->l3_reads = c->l3_writes = c->l2_reads = c->l2_writes = 0;
  c->forks = c->barriers = c->steps = 0;
}

#define U(x) ((unsigned long long)(x))
void dp_host_report(FILE *out) {
  const dp_host_counters *c = &dp_host.count;
  fprintf(out, "{\"traffic\": {\"l3_to_l2\": %llu, \"l2_to_l3\": %llu, \"l2_to_l1\": %llu, \"l1_to_l2\": %llu}, ", U(c->l3_to_l2), U(c->l2_to_l3),
          U(c->l2_to_l1), U(c->l1_to_l2));
  fprintf(out, "\"transfers\": {\"l3_to_l2\": %llu, \"l2_to_l3\": %llu, \"l2_to_l1\": %llu, \"l1_to_l2\": %llu}, ", U(c->l3_reads),
          U(c->l3_writes), U(c->l2_reads), U(c->l2_writes));
  fprintf(out, "\"l3\": {\"allocations\": %llu, \"bytes\": %llu, \"files\": %llu, \"file_bytes\": %llu}, ", U(c->l3_allocations), U(c->l3_bytes),
          U(c->l3_files), U(c->l3_file_bytes));
  fprintf(out, "\"l2\": {\"files\": %llu, \"file_bytes\": %llu}, ", U(c->l2_files), U(c->l2_file_bytes));
  fprintf(out, "\"forks\": %llu, \"barriers\": %llu, \"steps\": %llu, ", U(c->forks), U(c->barriers), U(c->steps));
  fprintf(out, "\"peaks\": {\"l1\": %llu, \"l2\": %llu, \"l3\": %llu}}\n", U(c->l1_peak), U(c->l2_peak), U(c->l3_peak));
}

void dp_host_finish(void) {
  dp_host_start();
  dp_dma_finish();
  dp_memory_finish();
}
