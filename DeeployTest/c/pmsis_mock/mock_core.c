/* The stand-in of the vendor's SDK: operating system, L1 and L2, cluster, its DMA. The fabric controller is the main thread; a task of the
 * cluster is a thread, and so is every worker of a fork. A command of the DMA moves its bytes when it is waited for; until then its
 * destination holds garbage. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mock.h"
#include "pmsis.h"

#define L1_BYTES (131072u - 624u) /* what is left by the SDK's own data */
#define L2_BYTES (1572864u - 98304u)
#define WORKERS 8
#define COMMANDS 16
#define GARBAGE 0x5A

static __thread uint32_t core = MOCK_FC;

void mock_check(int good, const char *what) {
  if (good) return;
  fflush(stdout);
  fprintf(stderr, "MOCK: %s\n", what);
  _exit(MOCK_FAILED);
}

void mock_on(uint32_t wanted, const char *call) {
  if (core == wanted) return;
  fflush(stdout);
  fprintf(stderr, "MOCK: %s on core %u, it belongs on core %u\n", call, core, wanted);
  _exit(MOCK_FAILED);
}

uint32_t pi_core_id(void) { return core; }

/* ---- devices */

static struct {
  const void *conf;
  mock_kind kind;
} known[16];

void mock_register(void *conf, mock_kind kind) {
  int i = 0;
  while (i < 16 && known[i].conf && known[i].conf != conf) i++;
  mock_check(i < 16, "too many configurations");
  known[i].conf = conf;
  known[i].kind = kind;
}

mock_kind mock_kind_of(const void *device) {
  for (int i = 0; i < 16; i++)
    if (known[i].conf && known[i].conf == ((const pi_device_t *)device)->config) return known[i].kind;
  return MOCK_NONE;
}

void pi_open_from_conf(struct pi_device *device, void *conf) { device->config = conf; }

/* ---- memory */

static mock_heap l1 = {"L1", 0, L1_BYTES, 0, {{0, 0}}}, l2 = {"L2", 0, L2_BYTES, 0, {{0, 0}}};

uintptr_t mock_take(mock_heap *heap, uint32_t bytes, uint32_t align) {
  uintptr_t at = (heap->base + align - 1) & ~(uintptr_t)(align - 1);
  uint32_t i = 0;
  mock_check(bytes > 0, "an allocation of nothing");
  for (; i < heap->blocks && heap->block[i].at < at + bytes; i++) at = (heap->block[i].at + heap->block[i].bytes + align - 1) & ~(uintptr_t)(align - 1);
  if (at + bytes > heap->base + heap->bytes) return 0;
  mock_check(heap->blocks < 128, "too many allocations");
  memmove(&heap->block[i + 1], &heap->block[i], (heap->blocks - i) * sizeof heap->block[0]);
  heap->block[i].at = at;
  heap->block[i].bytes = bytes;
  heap->blocks++;
  return at;
}

void mock_give(mock_heap *heap, uintptr_t at, uint32_t bytes) {
  uint32_t i = 0;
  while (i < heap->blocks && heap->block[i].at != at) i++;
  mock_check(i < heap->blocks && heap->block[i].bytes == bytes, "free of something else than was allocated");
  heap->blocks--;
  memmove(&heap->block[i], &heap->block[i + 1], (heap->blocks - i) * sizeof heap->block[0]);
}

/* The interface has addresses of 32 bits, so all that the DMA touches lies low. */
static void map(mock_heap *heap, uintptr_t address) {
  if (heap->base) return;
  void *got = mmap((void *)address, heap->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  mock_check(got == (void *)address, "no low memory");
  memset(got, GARBAGE, heap->bytes);
  heap->base = address;
}

void *pi_l2_malloc_align(int size, int align) {
  mock_on(MOCK_FC, "pi_l2_malloc_align");
  map(&l2, 0x30000000u);
  return (void *)mock_take(&l2, (uint32_t)size, (uint32_t)align);
}

void pi_l2_free(void *chunk, int size) { mock_give(&l2, (uintptr_t)chunk, (uint32_t)size); }

/* ---- cluster */

static pi_device_t *open_cluster;
static uintptr_t controller_stack;
static uint32_t controller_bytes;

void *pi_cl_l1_malloc_align(struct pi_device *device, int size, int align) {
  mock_check(device == open_cluster && device, "L1 of a cluster that is not open");
  return (void *)mock_take(&l1, (uint32_t)size, (uint32_t)align);
}

void pi_cl_l1_free(struct pi_device *device, void *chunk, int size) {
  mock_check(device == open_cluster && device, "L1 of a cluster that is not open");
  mock_give(&l1, (uintptr_t)chunk, (uint32_t)size);
}

void pi_cluster_conf_init(struct pi_cluster_conf *conf) {
  conf->id = -1;
  conf->cc_stack_size = 0x800;
  mock_register(conf, MOCK_CLUSTER);
}

int pi_cluster_open(struct pi_device *device) {
  mock_on(MOCK_FC, "pi_cluster_open");
  mock_check(mock_kind_of(device) == MOCK_CLUSTER && !open_cluster, "a cluster that cannot be opened");
  map(&l1, 0x20000000u);
  open_cluster = device;
  controller_bytes = ((struct pi_cluster_conf *)device->config)->cc_stack_size;
  controller_stack = mock_take(&l1, controller_bytes, 4);
  return 0;
}

int pi_cluster_close(struct pi_device *device) {
  mock_check(device == open_cluster && device, "a cluster is closed that is not open");
  mock_give(&l1, controller_stack, controller_bytes);
  open_cluster = NULL;
  return 0;
}

struct pi_cluster_task *pi_cluster_task(struct pi_cluster_task *task, void (*entry)(void *), void *arg) {
  memset(task, 0, sizeof *task);
  task->entry = entry;
  task->arg = arg;
  return task;
}

pi_cluster_task_t *pi_cluster_task_stacks(pi_cluster_task_t *task, void *stacks, int stack_size) {
  task->stacks = stacks;
  task->slave_stack_size = (uint32_t)stack_size;
  return task;
}

static void *run_controller(void *argument) {
  const pi_cluster_task_t *task = (const pi_cluster_task_t *)argument;
  core = MOCK_CONTROLLER;
  task->entry(task->arg);
  return NULL;
}

int pi_cluster_send_task_to_cl(struct pi_device *device, struct pi_cluster_task *task) {
  pthread_t thread;
  mock_on(MOCK_FC, "pi_cluster_send_task_to_cl");
  mock_check(device == open_cluster && device, "a task for a cluster that is not open");
  mock_check(task->entry && !task->stacks && task->slave_stack_size, "a task that was not prepared");
  const uint32_t bytes = WORKERS * task->slave_stack_size;
  const uintptr_t stacks = mock_take(&l1, bytes, 4);
  if (!stacks) return -1;
  mock_check(pthread_create(&thread, NULL, run_controller, task) == 0, "no thread");
  pthread_join(thread, NULL);
  mock_give(&l1, stacks, bytes);
  task->entry = NULL; /* has to be prepared again */
  return 0;
}

/* ---- team */

static struct {
  void (*entry)(void *);
  void *arg;
  int cores;
} fork_job;
static pthread_barrier_t team;

static void *run_worker(void *argument) {
  core = (uint32_t)(uintptr_t)argument;
  fork_job.entry(fork_job.arg);
  return NULL;
}

void pi_cl_team_fork(int nb_cores, void (*entry)(void *), void *arg) {
  pthread_t thread[WORKERS];
  mock_on(MOCK_CONTROLLER, "pi_cl_team_fork");
  mock_check(nb_cores >= 1 && nb_cores <= WORKERS, "a fork on a number of cores that there is not");
  fork_job.entry = entry;
  fork_job.arg = arg;
  fork_job.cores = nb_cores;
  pthread_barrier_init(&team, NULL, (unsigned)nb_cores);
  for (int i = 0; i < nb_cores; i++) mock_check(pthread_create(&thread[i], NULL, run_worker, (void *)(uintptr_t)i) == 0, "no thread");
  for (int i = 0; i < nb_cores; i++) pthread_join(thread[i], NULL);
  pthread_barrier_destroy(&team);
}

void pi_cl_team_barrier(void) {
  mock_check(core < WORKERS, "a team's barrier outside of a team");
  pthread_barrier_wait(&team);
}

/* ---- DMA between L1 and L2 */

static uint32_t in_flight;

void mock_rows(uint8_t *flat, uint8_t *strided, uint32_t bytes, uint32_t stride, uint32_t length, int to_flat) {
  for (uint32_t at = 0; at < bytes; at += length, strided += stride) {
    const uint32_t part = bytes - at < length ? bytes - at : length;
    memcpy(to_flat ? flat + at : strided, to_flat ? strided : flat + at, part);
  }
}

static int in_l1(uint32_t at, uint32_t bytes) { return at >= l1.base && (uint64_t)at + bytes <= l1.base + l1.bytes; }

static void issue(uint32_t ext, uint32_t loc, uint32_t size, uint32_t stride, uint32_t length, pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd) {
  mock_on(MOCK_CONTROLLER, "pi_cl_dma_cmd");
  mock_check(cmd->mock_state == 0, "a DMA command whose structure is in use");
  mock_check(++in_flight <= COMMANDS, "more DMA commands than there are counters");
  mock_check(size > 0 && size < 65536u && stride < 65536u && length > 0, "a DMA command that is not done in one");
  mock_check(in_l1(loc, size) && !in_l1(ext, size), "a DMA command that is not between L1 and L2");
  cmd->ext = ext;
  cmd->loc = loc;
  cmd->size = size;
  cmd->stride = stride;
  cmd->length = length;
  cmd->dir = dir;
  cmd->mock_state = 1;
  if (dir == PI_CL_DMA_DIR_EXT2LOC) memset((void *)(uintptr_t)loc, GARBAGE, size);
}

void pi_cl_dma_cmd(uint32_t ext, uint32_t loc, uint32_t size, pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd) {
  issue(ext, loc, size, 0, size, dir, cmd);
}

void pi_cl_dma_cmd_2d(uint32_t ext, uint32_t loc, uint32_t size, uint32_t stride, uint32_t length, pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd) {
  issue(ext, loc, size, stride, length, dir, cmd);
}

void pi_cl_dma_cmd_wait(pi_cl_dma_cmd_t *cmd) {
  mock_on(MOCK_CONTROLLER, "pi_cl_dma_cmd_wait");
  mock_check(cmd->mock_state == 1, "a wait for a DMA command that is not in flight");
  mock_rows((uint8_t *)(uintptr_t)cmd->loc, (uint8_t *)(uintptr_t)cmd->ext, cmd->size, cmd->stride, cmd->length, cmd->dir == PI_CL_DMA_DIR_EXT2LOC);
  cmd->mock_state = 0;
  in_flight--;
}

/* ---- counters, start and end */

static int counting;

void pi_perf_conf(unsigned events) { counting = events == 1u << PI_PERF_CYCLES; }
void pi_perf_reset(void) {}
void pi_perf_start(void) {}

unsigned int pi_perf_read(int id) {
  struct timespec now;
  mock_check(counting && id == PI_PERF_CYCLES, "a counter that was not configured");
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned)now.tv_sec * 1000000000u + (unsigned)now.tv_nsec;
}

int pmsis_kickoff(void *arg) {
  ((void (*)(void *))arg)(NULL);
  return 0;
}

void pmsis_exit(int err) {
  mock_on(MOCK_FC, "pmsis_exit");
  if (err == 0) {
    mock_check(in_flight == 0, "DMA commands that nobody has waited for");
    mock_check(!open_cluster && l1.blocks == 0 && l2.blocks == 0, "something is left open or allocated");
    mock_devices_end();
  }
  fflush(stdout);
  exit(err);
}
