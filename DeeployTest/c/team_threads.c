/* The team of dp_kernel.h on POSIX threads, for tests that call kernels through ctypes. */
#include <pthread.h>

#include "dp_kernel.h"

static pthread_barrier_t barrier;
static __thread int rank_of_thread;

int dp_team_rank(const dp_team *team) {
  (void)team;
  return rank_of_thread;
}

void dp_team_barrier(const dp_team *team) {
  if (team->cores > 1) pthread_barrier_wait(&barrier);
}

typedef struct job {
  dp_kernel kernel;
  const dp_args *args;
  dp_team team;
  int rank;
} job;

static void *work(void *argument) {
  const job *j = (const job *)argument;
  rank_of_thread = j->rank;
  j->kernel(j->args, &j->team);
  return NULL;
}

/* Calls the kernel once on each of `cores` (1 to 8) threads. */
void test_fork(int cores, dp_kernel kernel, const dp_args *args) {
  pthread_t thread[8];
  job jobs[8];
  if (cores == 1) {
    job j = {kernel, args, {0, 1, 0}, 0};
    work(&j);
    return;
  }
  pthread_barrier_init(&barrier, NULL, (unsigned)cores);
  for (int i = 0; i < cores; i++) {
    jobs[i].kernel = kernel;
    jobs[i].args = args;
    jobs[i].team.first = 0;
    jobs[i].team.cores = (uint8_t)cores;
    jobs[i].team.barrier = 0;
    jobs[i].rank = i;
    pthread_create(&thread[i], NULL, work, &jobs[i]);
  }
  for (int i = 0; i < cores; i++) pthread_join(thread[i], NULL);
  pthread_barrier_destroy(&barrier);
}
