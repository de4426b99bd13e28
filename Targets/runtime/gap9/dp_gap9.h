/* The vendor's SDK: what the files of this runtime share. Only calls of the public PMSIS interface are used.
 *
 * FC: on the fabric controller. CL: on the cluster's controller. The devices are opened when they are first used, on the FC. */
#ifndef DP_GAP9_H
#define DP_GAP9_H
#include <stddef.h>
#include <stdint.h>

#include "bsp/bsp.h"
#include "bsp/flash.h"
#include "bsp/fs.h"
#include "bsp/fs/hostfs.h"
#include "bsp/fs/readfs.h"
#include "bsp/ram.h"
#include "pmsis.h"

#include "dp_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stacks in L1, in bytes, as on the bare chip; what platform files reserve in L1 is for them. */
#ifndef DP_WORKER_STACK
#define DP_WORKER_STACK 704
#endif
#ifndef DP_CONTROLLER_STACK
#define DP_CONTROLLER_STACK 2816
#endif

/* Added to addresses in the RAM, so that no address in L3 is 0. */
#define DP_L3_BASE 0x40000000u

#define DP_FENCE() __asm__ volatile("" ::: "memory")

/* What the controller counts. Cycles are of the cluster; waiting is what a wait took. */
typedef struct dp_gap9_counters {
  uint32_t compute, wait_l2, wait_l3, fork_join;   /* cycles; forks are not told from computing here: fork_join stays 0 */
  uint32_t forks;
  uint32_t l3_to_l2, l2_to_l3, l2_to_l1, l1_to_l2; /* bytes */
} dp_gap9_counters;

extern dp_gap9_counters dp_gap9_count;

/* What Init has taken and loaded. */
typedef struct dp_gap9_loads {
  uint32_t allocations, bytes, files, file_bytes, l2_files, l2_file_bytes;
} dp_gap9_loads;

extern dp_gap9_loads dp_gap9_loaded;
extern uint32_t dp_gap9_cycles; /* of all calls of the cluster */

/* FC. Prints the line and ends the program with status 1. */
void dp_gap9_die(const char *what);
/* FC. The cluster, powered up. Ends the program if that fails. */
struct pi_device *dp_gap9_cluster(void);
/* FC. The external RAM; NULL if it cannot be opened. */
struct pi_device *dp_gap9_ram(void);
/* The same, once it is open. FC and CL. */
extern struct pi_device dp_gap9_ram_device;
/* FC. Closes what is open. */
void dp_gap9_close_memory(void);
void dp_gap9_close_cluster(void);
/* FC. Prints the counters and the program's status as one line of JSON, and leaves steps.bin if steps were measured. */
void dp_gap9_report(int status);

/* CL. Cycles of the cluster; dp_gap9_measure comes first in every call of the cluster. */
static inline void dp_gap9_measure(void) {
  pi_perf_conf(1u << PI_PERF_CYCLES);
  pi_perf_reset();
  pi_perf_start();
}
static inline uint32_t dp_gap9_now(void) { return pi_perf_read(PI_PERF_CYCLES); }

#ifdef __cplusplus
}
#endif
#endif
