/* What only the host runtime offers, for the main program of a simulated project: level sizes, observers, counters, final checks.
 *
 * Environment: DP_HOST_CHECK = none | lazy | eager | tsan   how transfers are checked (default: none; tsan in ThreadSanitizer builds)
 *              DP_HOST_SEED  = N                            start of the order in which cores run (default 1)
 *              DP_HOST_FILES = DIR                          where load_file_to_ram and dp_load_part_to_l2 look for files
 * Every failed check prints one line that begins with "HOSTRT: " to stderr and ends the process with DP_HOST_FAILED.
 */
#ifndef DP_HOST_H
#define DP_HOST_H
#include <stdint.h>
#include <stdio.h>

#include "dp_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DP_HOST_FAILED 71
#define DP_HOST_CORES 64 /* the most cores that can be simulated */

/* Bytes of each level that allocations may take, and worker cores. Call it before anything else; without it: 128 KiB, 1.5 MiB, 32 MiB, 8. */
void dp_host_configure(uint32_t l1, uint32_t l2, uint32_t l3, uint32_t cores);
/* The engine between level `outer` (2 or 3) and the one inside it: bytes of one command at most; what addresses, row lengths and strides
 * are multiples of; what a row's length is rounded up to on the way in. Without it: DP_DMA_MAX_BYTES, 1, and 1 (L2) or 4 (L3). */
void dp_host_configure_dma(uint32_t outer, uint32_t max_bytes, uint32_t alignment, uint32_t read_rounding);

typedef struct dp_host_counters {
  uint64_t l3_to_l2, l2_to_l3, l2_to_l1, l1_to_l2;         /* bytes moved, as asked for (without rounding) */
  uint64_t l3_reads, l3_writes, l2_reads, l2_writes;       /* commands, in the same order */
  uint64_t l3_allocations, l3_bytes, l3_files, l3_file_bytes; /* cl_ram_malloc, load_file_to_ram */
  uint64_t l2_files, l2_file_bytes;                        /* dp_load_part_to_l2 */
  uint64_t forks, barriers, steps;
  uint64_t l1_peak, l2_peak, l3_peak;                      /* the most bytes taken from a level at once */
} dp_host_counters;

const dp_host_counters *dp_host_count(void);
/* Sets bytes, commands, forks, barriers and steps to 0 (allocations, files and peaks stay): to count the rounds alone. */
void dp_host_reset_traffic(void);
/* Prints the counters as one JSON object on one line. */
void dp_host_report(FILE *out);

/* Called at the begin and the end of every step (NULL: not). No transfer may be in flight that the observer wants to look at. */
void dp_host_on_step(void (*begin)(uint32_t step), void (*end)(uint32_t step));
/* The bytes behind an L3 address, for observers and for filling inputs. */
void *dp_host_l3_pointer(dp_l3 address);

/* Checks of the end of a program: every transfer waited for, every buffer closed, every allocation freed. */
void dp_host_finish(void);

#ifdef __cplusplus
}
#endif
#endif
