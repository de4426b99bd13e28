/* Start, end, and the cores: the fabric controller calls the cluster's controller, which forks the workers. */
#include "dp_pulp.h"

extern char dp_cluster_start[], __stacks[], __stacks_end[], __rounds[];
int main(int argc, char **argv);
void dp_pulp_main(void);
void dp_pulp_core(uint32_t core);
void dp_pulp_trap(uint32_t cause, uint32_t pc, uint32_t sp, uint32_t ra);
extern uint8_t dp_pulp_trap_stacks[];

#define UNUSED 0x5AFE57ACu /* word of a stack that was never written */
#define TEAM 0 /* barriers */
#define JOIN 1

uint8_t DP_ALIGN(16) dp_pulp_trap_stacks[(DP_WORKERS + 2) * 256];
DP_L1_DATA dp_pulp_counters dp_pulp_count;
uint32_t dp_pulp_cycles;

/* What the workers are to do, and what the controller is to do. */
static DP_L1_DATA struct {
  dp_kernel kernel;
  const dp_args *args;
  dp_team team;
  uint32_t mask; /* the team, as last written to the barriers */
} job;
static DP_L1_DATA struct {
  void (*entry)(void *);
  void *argument;
  volatile uint32_t done;
} call;

/* ---- end --------------------------------------------------------------------------------------------------------------------------- */

void dp_pulp_exit(int status) {
  *dp_reg(SOC_STATUS) = 0x80000000u | (uint32_t)status;
  for (;;) __asm__ volatile("wfi");
}

void dp_pulp_die(int status, const char *text, uint32_t number) {
  dp_pulp_text(text);
  dp_pulp_hex(number);
  dp_pulp_put('\n');
  dp_pulp_exit(status);
}

void dp_pulp_trap(uint32_t cause, uint32_t pc, uint32_t sp, uint32_t ra) {
  static const char *const what[] = {"TRAP: hart ", " mcause ", " mepc ", " sp ", " ra "};
  const uint32_t value[] = {dp_hart(), cause, pc, sp, ra};
  for (int i = 0; i < 5; i++) {
    dp_pulp_text(what[i]);
    dp_pulp_hex(value[i]);
  }
  dp_pulp_put('\n');
  dp_pulp_exit(DP_TRAPPED);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------------------------ */

/* They are filled with a pattern at the start, so that what was never used can be seen. */

static uint32_t *stack_of(uint32_t core) { return (uint32_t *)(void *)(__stacks + core * DP_WORKER_STACK); }

static void mark_stacks(void) {
  for (uint32_t *word = stack_of(0); word < (uint32_t *)(void *)__stacks_end; word++) *word = UNUSED;
}

static void check_stacks(void) {
  for (uint32_t core = 0; core <= DP_CONTROLLER; core++)
    if (*(volatile uint32_t *)stack_of(core) != UNUSED) dp_pulp_die(DP_STACK_BROKEN, "STACK: overflow on core ", core);
}

uint32_t dp_pulp_stack_free(uint32_t core) {
  const uint32_t last = core == DP_CONTROLLER ? DP_CONTROLLER : DP_WORKERS - 1;
  uint32_t least = DP_CONTROLLER_STACK + DP_WORKER_STACK;
  for (uint32_t c = core; c <= last; c++) {
    uint32_t words = 0;
    while (words < (c == DP_CONTROLLER ? DP_CONTROLLER_STACK : DP_WORKER_STACK) / 4u && stack_of(c)[words] == UNUSED) words++;
    if (4u * words < least) least = 4u * words;
  }
  return least;
}

/* ---- start ------------------------------------------------------------------------------------------------------------------------- */

void dp_pulp_main(void) {
  static char rounds[12];
  static char name[] = "network";
  char *argv[] = {name, rounds, NULL};
  uint32_t number = (uint32_t)(uintptr_t)__rounds, digits = 0;
  for (uint32_t n = number; n || !digits; n /= 10u) digits++;
  for (uint32_t n = number, at = digits; at > 0; n /= 10u) rounds[--at] = (char)('0' + n % 10u);
  *dp_reg(FC_ICACHE) = ~0u;
  *dp_reg(CLUSTER_ICACHE) = ~0u;
  *dp_reg(FC_EVENT_MASK) = 1u;
  *dp_reg(CLUSTER_TIMER) = 3u;
  dp_memory_start();
  dp_hyper_start();
  mark_stacks();
  for (uint32_t core = 0; core <= DP_CONTROLLER; core++) *dp_reg(CLUSTER_BOOT + 4u * core) = (uint32_t)(uintptr_t)dp_cluster_start;
  *dp_reg(CLUSTER_FETCH) = (1u << (DP_CONTROLLER + 1)) - 1u;
  const int status = main(2, argv);
  dp_pulp_report();
  dp_pulp_exit(status);
}

static void arrive(uint32_t barrier) { dp_event_load(EVENT_BARRIER + 32u * barrier + 28u); }

#ifdef DP_PROFILE
/* When each worker began and ended its part of the last kernel. */
static DP_L1_DATA struct {
  uint32_t begin, end;
} stamp[DP_CONTROLLER];
#endif

static void work(void) {
  *dp_reg(EVENT_MASK_ON) = 1u << EVENT_FORK | 1u << EVENT_BIT_BARRIER;
  for (;;) {
    dp_event_load(EVENT_WAIT);
#ifdef DP_PROFILE
    const uint32_t core = dp_hart() & 31u;
    stamp[core].begin = dp_now();
    job.kernel(job.args, &job.team);
    stamp[core].end = dp_now();
#else
    job.kernel(job.args, &job.team);
#endif
    DP_FENCE();
    arrive(JOIN);
  }
}

static void control(void) {
  *dp_reg(EVENT_MASK_ON) = 1u << EVENT_CALL | 1u << EVENT_BIT_BARRIER;
  for (;;) {
    dp_event_load(EVENT_WAIT);
    *dp_reg(EVENT_MASK_OFF) = 1u << EVENT_CALL;
    const uint32_t begin = dp_now();
    call.entry(call.argument);
    dp_pulp_cycles += dp_now() - begin;
    check_stacks();
    *dp_reg(EVENT_MASK_ON) = 1u << EVENT_CALL;
    DP_FENCE();
    call.done = 1;
    *dp_reg(FC_EVENT_SET) = 1u;
  }
}

void dp_pulp_core(uint32_t core) {
  if (core == DP_CONTROLLER)
    control();
  else
    work();
}

/* ---- the interface ------------------------------------------------------------------------------------------------------------------- */

void dp_cluster_call(void (*entry)(void *), void *argument) {
  call.entry = entry;
  call.argument = argument;
  call.done = 0;
  DP_FENCE();
  *dp_reg(CLUSTER_TRIGGER + 4u * EVENT_CALL) = 1u << DP_CONTROLLER;
  while (!call.done) __asm__ volatile("wfi" ::: "memory");
  *dp_reg(FC_EVENT_CLEAR) = 1u;
  DP_FENCE();
}

/* The mask of those who meet first: a barrier for nobody is always complete, and releases whom it may at once. */
static void set_barrier(uint32_t barrier, uint32_t mask) {
  *dp_reg(EVENT_BARRIER + 32u * barrier) = mask;
  *dp_reg(EVENT_BARRIER + 32u * barrier + 12u) = mask;
}

void dp_fork(uint32_t cores, dp_kernel kernel, const dp_args *args) {
  const uint32_t mask = (1u << cores) - 1u;
#ifdef DP_PROFILE
  const uint32_t begin = dp_now();
#endif
  job.kernel = kernel;
  job.args = args;
  if (mask != job.mask) {
    job.mask = mask;
    job.team.first = 0;
    job.team.cores = (uint8_t)cores;
    job.team.barrier = TEAM;
    set_barrier(TEAM, mask);
    set_barrier(JOIN, mask | 1u << DP_CONTROLLER);
  }
  DP_FENCE();
  *dp_reg(EVENT_TRIGGER + 4u * EVENT_FORK) = mask;
  arrive(JOIN);
#ifdef DP_PROFILE
  uint32_t first = stamp[0].begin, last = stamp[0].end;
  for (uint32_t core = 1; core < cores; core++) {
    if ((int32_t)(stamp[core].begin - first) < 0) first = stamp[core].begin;
    if ((int32_t)(stamp[core].end - last) > 0) last = stamp[core].end;
  }
  dp_pulp_count.compute += last - first;
  dp_pulp_count.fork_join += dp_now() - begin - (last - first);
  dp_pulp_count.forks++;
#endif
}

int dp_team_rank(const dp_team *team) { return (int)(dp_hart() & 31u) - team->first; }

void dp_team_barrier(const dp_team *team) {
  DP_FENCE();
  if (team->cores > 1) arrive(team->barrier);
}
