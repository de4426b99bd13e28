/* A stand-in for the header of the vendor's SDK: those declarations that Targets/runtime/gap9 uses, with the signatures of the public PMSIS
 * documentation. What the SDK defines inline is declared here; structures have the documented fields that are used, and one of the mock. */
#ifndef MOCK_PMSIS_H
#define MOCK_PMSIS_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where static data lies. */
#define PI_L1 __attribute__((section(".data.mock_l1")))
#define PI_L2

/* ---- devices */

typedef struct pi_device {
  void *api;
  void *config;
  void *data;
} pi_device_t;

void pi_open_from_conf(struct pi_device *device, void *conf);

/* ---- operating system */

int pmsis_kickoff(void *arg);
void pmsis_exit(int err);
uint32_t pi_core_id(void);

/* ---- memory */

void *pi_l2_malloc_align(int size, int align);
void pi_l2_free(void *chunk, int size);
void *pi_cl_l1_malloc_align(struct pi_device *device, int size, int align);
void pi_cl_l1_free(struct pi_device *device, void *chunk, int size);

/* ---- cluster, from the fabric controller */

struct pi_cluster_conf {
  int id;
  uint32_t cc_stack_size;
};

typedef struct pi_cluster_task {
  void (*entry)(void *);
  void *arg;
  void *stacks;
  uint32_t slave_stack_size;
} pi_cluster_task_t;

void pi_cluster_conf_init(struct pi_cluster_conf *conf);
int pi_cluster_open(struct pi_device *device);
int pi_cluster_close(struct pi_device *device);
struct pi_cluster_task *pi_cluster_task(struct pi_cluster_task *task, void (*entry)(void *), void *arg);
pi_cluster_task_t *pi_cluster_task_stacks(pi_cluster_task_t *task, void *stacks, int stack_size);
int pi_cluster_send_task_to_cl(struct pi_device *device, struct pi_cluster_task *task);

/* ---- cluster, on its controller and workers */

void pi_cl_team_fork(int nb_cores, void (*entry)(void *), void *arg);
void pi_cl_team_barrier(void);

typedef enum { PI_CL_DMA_DIR_LOC2EXT = 0, PI_CL_DMA_DIR_EXT2LOC = 1 } pi_cl_dma_dir_e;

typedef struct pi_cl_dma_cmd_s {
  uint32_t ext, loc, size, stride, length;
  pi_cl_dma_dir_e dir;
  uint32_t mock_state;
} pi_cl_dma_cmd_t;

void pi_cl_dma_cmd(uint32_t ext, uint32_t loc, uint32_t size, pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd);
void pi_cl_dma_cmd_2d(uint32_t ext, uint32_t loc, uint32_t size, uint32_t stride, uint32_t length, pi_cl_dma_dir_e dir, pi_cl_dma_cmd_t *cmd);
void pi_cl_dma_cmd_wait(pi_cl_dma_cmd_t *cmd);

/* ---- performance counters */

enum { PI_PERF_CYCLES = 17 };

void pi_perf_conf(unsigned events);
void pi_perf_reset(void);
void pi_perf_start(void);
unsigned int pi_perf_read(int id);

#ifdef __cplusplus
}
#endif
#endif
