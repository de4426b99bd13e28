/* The bare machine: registers of the chip, and what the files of this runtime share. */
#ifndef DP_PULP_H
#define DP_PULP_H
#include <stddef.h>
#include <stdint.h>

#include "dp_pulp_layout.h"
#include "dp_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DP_L1_DATA __attribute__((section(".l1.data")))

/* Exit statuses of a program that did not end by itself. */
#define DP_TRAPPED 70
#define DP_STACK_BROKEN 73

/* Added to offsets in the RAM, so that no address in L3 is 0. */
#define L3_BASE 0x40000000u

/* ---- registers ------------------------------------------------------------------------------------------------------------------- */

static inline volatile uint32_t *dp_reg(uintptr_t address) { return (volatile uint32_t *)address; }

#define SOC_STATUS 0x1A1040A0u      /* ends the simulation */
#define SOC_STDOUT 0x1A10F000u      /* one byte a write, + (cluster << 7) + (core << 3) */
#define FC_ICACHE 0x1A108800u
#define FC_EVENT_MASK 0x1A109804u   /* events that end a wfi */
#define FC_EVENT_SET 0x1A109810u    /* of the fabric controller */
#define FC_EVENT_CLEAR 0x1A109814u
#define CLUSTER_FETCH 0x10200008u   /* mask of running cores */
#define CLUSTER_BOOT 0x10200040u    /* + 4 * core: where it starts */
#define CLUSTER_TIMER 0x10200400u   /* +0: 3 resets and starts; +8: cycles */
#define CLUSTER_ICACHE 0x10201400u
#define CLUSTER_TRIGGER 0x10200E00u /* + 4 * event, as seen from outside the cluster: mask of cores */

/* Event unit, as a core of the cluster sees its own part. */
#define EVENT_MASK_OFF 0x10204004u
#define EVENT_MASK_ON 0x10204008u
#define EVENT_WAIT 0x1020403Cu     /* p.elw: sleeps until a masked-in event, and clears it */
#define EVENT_TRIGGER 0x10204100u  /* + 4 * event: mask of cores */
#define EVENT_BARRIER 0x10204200u  /* + 32 * barrier: +0 cores that meet, +12 cores that are woken, +28 p.elw: arrives and waits */
#define EVENT_FORK 0               /* software events */
#define EVENT_CALL 1
#define EVENT_BIT_DMA 8
#define EVENT_BIT_BARRIER 16

/* DMA between L1 and L2, per core. */
#define MCHAN_COMMAND 0x10204400u
#define MCHAN_STATUS 0x10204404u

/* uDMA with the HyperBus. */
#define UDMA_GATE 0x1A102000u
#define HYPER_GATE (1u << 8)
#define HYPER_WINDOW 0x1A102480u /* + 128 * window */
#define HYPER_COMMON 0x1A102880u

static inline uint32_t dp_hart(void) {
  uint32_t hart;
  __asm__ volatile("csrr %0, mhartid" : "=r"(hart));
  return hart;
}

/* The load that sleeps until the event unit answers. */
static inline void dp_event_load(uintptr_t address) {
  uint32_t value;
  __asm__ volatile(".insn i 0x03, 6, %0, %1, 0" : "=r"(value) : "r"(address) : "memory");
}

static inline uint32_t dp_now(void) { return *dp_reg(CLUSTER_TIMER + 8u); }

#define DP_FENCE() __asm__ volatile("" ::: "memory")

/* ---- shared by the files ------------------------------------------------------------------------------------------------------------ */

/* What the controller counts. Cycles are of the cluster; waiting is what a wait really took. compute: from the first worker's beginning of a
 * kernel to the last one's end; fork_join: what a fork takes beside that. */
typedef struct dp_pulp_counters {
  uint32_t compute, wait_l2, wait_l3, fork_join; /* cycles */
  uint32_t forks;
  uint32_t l3_to_l2, l2_to_l3, l2_to_l1, l1_to_l2; /* bytes */
} dp_pulp_counters;

extern dp_pulp_counters dp_pulp_count;

/* What Init has taken and loaded. */
typedef struct dp_pulp_loads {
  uint32_t allocations, bytes, files, file_bytes, l2_files, l2_file_bytes;
} dp_pulp_loads;

extern dp_pulp_loads dp_pulp_loaded;
extern uint32_t dp_pulp_cycles; /* of all calls of the cluster */

void dp_pulp_exit(int status) __attribute__((noreturn));
void dp_pulp_die(int status, const char *text, uint32_t number) __attribute__((noreturn));

/* console */
void dp_pulp_put(char c);
void dp_pulp_text(const char *text);
void dp_pulp_hex(uint32_t value);

/* files of the simulating machine, made anew or appended to; a handle is negative if the file cannot be made */
int32_t dp_pulp_file_open(const char *name, int append);
int dp_pulp_file_write(int32_t file, const void *data, uint32_t bytes); /* 0 if all is written */
int dp_pulp_file_close(int32_t file);

/* HyperBus: one transfer, from the fabric controller, done on return. chip: 0 the RAM, 1 the flash. `near_side`: of a read, up to 3 bytes past
 * the end are overwritten. */
void dp_hyper_start(void);
void dp_hyper_copy(uint32_t chip, void *near_side, uint32_t far_side, uint32_t bytes, dp_direction direction);

void dp_memory_start(void);
/* The fewest bytes that were left free of the stacks of the workers (core 0) or of the controller. */
uint32_t dp_pulp_stack_free(uint32_t core);
/* Prints the counters as one line of JSON. */
void dp_pulp_report(void);

#ifdef __cplusplus
}
#endif
#endif
