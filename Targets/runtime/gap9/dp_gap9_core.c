/* Start and end of the program, and the cores: the fabric controller sends tasks to the cluster's controller, which forks the workers. */
#include <stdio.h>

#include "dp_gap9.h"

#ifndef DP_ROUNDS
#define DP_ROUNDS 1
#endif
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* The project's main; its file is compiled with this name for it. */
int dp_gap9_program(int argc, char **argv);

PI_L2 dp_gap9_counters dp_gap9_count;
PI_L2 uint32_t dp_gap9_cycles;

typedef struct call {
  void (*entry)(void *);
  void *argument;
} call;

static PI_L2 struct pi_device cluster;
static PI_L2 struct pi_cluster_conf cluster_conf;
static PI_L2 struct pi_cluster_task task;
static PI_L2 call current;
static PI_L2 int cluster_open;

/* ---- start and end ------------------------------------------------------------------------------------------------------------------ */

void dp_gap9_die(const char *what) {
  printf("SDKRT: %s\n", what);
  pmsis_exit(1);
}

static void start(void *unused) {
  static char name[] = "network", rounds[] = TEXT(DP_ROUNDS);
  char *argv[] = {name, rounds, NULL};
  (void)unused;
  const int status = dp_gap9_program(2, argv);
  dp_gap9_report(status);
  dp_gap9_close_memory();
  dp_gap9_close_cluster();
  pmsis_exit(status);
}

int main(void) { return pmsis_kickoff((void *)start); }

/* ---- the cluster ---------------------------------------------------------------------------------------------------------------------- */

struct pi_device *dp_gap9_cluster(void) {
  if (!cluster_open) {
    pi_cluster_conf_init(&cluster_conf);
    cluster_conf.id = 0;
    cluster_conf.cc_stack_size = DP_CONTROLLER_STACK;
    pi_open_from_conf(&cluster, &cluster_conf);
    if (pi_cluster_open(&cluster)) dp_gap9_die("the cluster cannot be opened");
    cluster_open = 1;
  }
  return &cluster;
}

void dp_gap9_close_cluster(void) {
  if (cluster_open) pi_cluster_close(&cluster);
  cluster_open = 0;
}

static void control(void *argument) {
  const call *c = (const call *)argument;
  dp_gap9_measure();
  const uint32_t begin = dp_gap9_now();
  c->entry(c->argument);
  dp_gap9_cycles += dp_gap9_now() - begin;
  DP_FENCE();
}

void dp_cluster_call(void (*entry)(void *), void *argument) {
  struct pi_device *device = dp_gap9_cluster();
  current.entry = entry;
  current.argument = argument;
  pi_cluster_task(&task, control, &current);
  /* The SDK takes the workers' stacks from L1 for the time of the call. */
  pi_cluster_task_stacks(&task, NULL, DP_WORKER_STACK);
  DP_FENCE();
  if (pi_cluster_send_task_to_cl(device, &task)) dp_gap9_die("the cluster does not take the task: too little L1 for its stacks?");
  DP_FENCE();
}

/* ---- the workers ---------------------------------------------------------------------------------------------------------------------- */

typedef struct job {
  dp_kernel kernel;
  const dp_args *args;
  dp_team team;
} job;

static void work(void *argument) {
  const job *j = (const job *)argument;
  j->kernel(j->args, &j->team);
  DP_FENCE();
}

void dp_fork(uint32_t cores, dp_kernel kernel, const dp_args *args) {
  job j; /* on the controller's stack, which is in L1; the fork returns when all have returned */
#ifdef DP_PROFILE
  const uint32_t begin = dp_gap9_now();
#endif
  j.kernel = kernel;
  j.args = args;
  j.team.first = 0;
  j.team.cores = (uint8_t)cores;
  j.team.barrier = 0;
  DP_FENCE();
  pi_cl_team_fork((int)cores, work, &j);
  DP_FENCE();
  dp_gap9_count.forks++;
#ifdef DP_PROFILE
  dp_gap9_count.compute += dp_gap9_now() - begin;
#endif
}

int dp_team_rank(const dp_team *team) { return (int)pi_core_id() - team->first; }

/* The SDK's barrier is that of the cores of the last fork. */
void dp_team_barrier(const dp_team *team) {
  DP_FENCE();
  if (team->cores > 1) pi_cl_team_barrier();
  DP_FENCE();
}
