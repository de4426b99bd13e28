/* The C interface that generated code runs on; one implementation per runtime (host, pulp, gap9).
 *
 * RunNetwork runs on the cluster's controller; it programs transfers and forks the worker cores. All bytes move by these calls only.
 */
#ifndef DP_RUNTIME_H
#define DP_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Alignment of static data, in bytes. */
#define DP_ALIGN(bytes) __attribute__((aligned(bytes)))

/* An address in L3: not a pointer, nothing but transfers may read it. */
typedef uintptr_t dp_l3;

/* ---- allocation and loading, outside of Run only ---------------------------------------------------------------------------- */

/* Takes `bytes` of L3 (0 is allowed); returns 0 if there is no room. One call per constant or state storage. */
dp_l3 cl_ram_malloc(uint32_t bytes);
void cl_ram_free(dp_l3 address, uint32_t bytes);
/* Copies file `name` (raw bytes, exactly `bytes` long) to L3. Returns 0, or -1 if it cannot be read or has another length. */
int load_file_to_ram(dp_l3 address, const char *name, uint32_t bytes);
/* Copies to L2 the `bytes` from `offset` on of file `name`, which is exactly `total` bytes long. Returns 0, or -1 if the file cannot be read, has
 * another length, or ends before the part does. Counted are the bytes, and a file with the part that is at its begin. */
int dp_load_part_to_l2(void *address, const char *name, uint32_t total, uint32_t offset, uint32_t bytes);
/* The whole file. */
static inline int dp_load_file_to_l2(void *address, const char *name, uint32_t bytes) {
  return dp_load_part_to_l2(address, name, bytes, 0, bytes);
}
/* Arenas for everything that has no initial bytes. L1 is taken per run. Return 0 / NULL if there is no room. */
dp_l3 dp_arena_l3(uint32_t bytes);
void dp_arena_l3_free(dp_l3 address, uint32_t bytes);
void *dp_arena_l2(uint32_t bytes);
void dp_arena_l2_free(void *address, uint32_t bytes);
void *dp_arena_l1(uint32_t bytes);
void dp_arena_l1_free(void *address, uint32_t bytes);

/* ---- buffers inside an arena -------------------------------------------------------------------------------------------------
 * Opens the buffer at the planned `offset` of an arena; closing ends its life. On the chip opening is an addition and closing nothing.
 * On the host every transfer must lie inside one open buffer (or one allocation), and with AddressSanitizer the buffers are laid apart
 * with red zones between them instead of at their planned addresses. */
#ifdef DP_HOST
void *dp_open_l1(void *arena, uint32_t offset, uint32_t bytes);
void *dp_open_l2(void *arena, uint32_t offset, uint32_t bytes);
dp_l3 dp_open_l3(dp_l3 arena, uint32_t offset, uint32_t bytes);
void dp_close_l1(void *buffer, uint32_t bytes);
void dp_close_l2(void *buffer, uint32_t bytes);
void dp_close_l3(dp_l3 buffer, uint32_t bytes);
#else
static inline void *dp_open_l1(void *arena, uint32_t offset, uint32_t bytes) { (void)bytes; return (uint8_t *)arena + offset; }
static inline void *dp_open_l2(void *arena, uint32_t offset, uint32_t bytes) { (void)bytes; return (uint8_t *)arena + offset; }
static inline dp_l3 dp_open_l3(dp_l3 arena, uint32_t offset, uint32_t bytes) { (void)bytes; return arena + offset; }
static inline void dp_close_l1(void *buffer, uint32_t bytes) { (void)buffer; (void)bytes; }
static inline void dp_close_l2(void *buffer, uint32_t bytes) { (void)buffer; (void)bytes; }
static inline void dp_close_l3(dp_l3 buffer, uint32_t bytes) { (void)buffer; (void)bytes; }
#endif

/* ---- transfers -----------------------------------------------------------------------------------------------------------------
 * A handle stands for any number of commands that are waited for together. A handle that is all zero is idle.
 * Waiting for an idle handle does nothing. Issuing on a handle that has commands in flight adds to them.
 * A command copies `rows` rows of `row_bytes`; on the far side rows lie `stride` bytes apart, on the near side they follow each other.
 * At most DP_DMA_MAX_BYTES a command: callers split (dp_tile.h does). It is the platforms' max_bytes.
 *
 * Order: the commands of one L3 handle are carried out in the order in which they are issued. Nothing else is ordered: neither commands of
 * different handles nor those of one L2 handle. No two commands of one handle write the same bytes, and none writes what a command of
 * another handle in flight reads or writes.
 *
 * An L3 read (DP_IN) overwrites bytes past its end: every row's length is rounded up to a multiple of the platform's read_rounding (rows
 * without gaps between them, stride == row_bytes, count as one row). The bytes overwritten past the last row
 *   - lie in the buffer that holds the rows (so the buffer has room behind the rows),
 *   - are bytes that later commands of the same handle write, or that nobody reads before they are written again,
 *   - are no bytes that an earlier command of the same handle has written, nor any that another handle in flight reads or writes.
 * So rows that are packed one after the other are issued in ascending order. The host checks all of this. */
#define DP_DMA_MAX_BYTES ((1u << 17) - 1u)

typedef struct dp_dma {
  uint32_t pending; /* commands in flight */
  uint32_t id;      /* the runtime's own */
  void *link;       /* the runtime's own */
} dp_dma;

typedef enum dp_direction { DP_IN = 0 /* towards the cores */, DP_OUT = 1 } dp_direction;

void dp_dma_l2(dp_dma *handle, void *l1, void *l2, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction);
void dp_dma_l2_wait(dp_dma *handle);
void dp_dma_l3(dp_dma *handle, void *l2, dp_l3 l3, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction);
void dp_dma_l3_wait(dp_dma *handle);

/* Copies between L3 and data of the caller (L2), and returns when done. For setting inputs and getting outputs, outside of Run; they are
 * not part of the network's traffic. */
void dp_l3_read(void *data, dp_l3 l3, uint32_t bytes);
void dp_l3_write(dp_l3 l3, const void *data, uint32_t bytes);

/* ---- cores -------------------------------------------------------------------------------------------------------------------- */

/* Runs `kernel` on `cores` worker cores and returns when all have returned. */
void dp_fork(uint32_t cores, dp_kernel kernel, const dp_args *args);
/* Runs `entry(argument)` on the cluster's controller and returns when it has returned (called by the fabric controller). */
void dp_cluster_call(void (*entry)(void *), void *argument);

/* ---- measuring ---------------------------------------------------------------------------------------------------------------- */

/* Marks in RunNetwork: begin and end of a step. Nothing on the chip unless built with DP_PROFILE. */
#if defined(DP_HOST) || defined(DP_PROFILE)
void dp_step_begin(uint32_t step);
void dp_step_end(uint32_t step);
#else
static inline void dp_step_begin(uint32_t step) { (void)step; }
static inline void dp_step_end(uint32_t step) { (void)step; }
#endif

#ifdef __cplusplus
}
#endif
#endif
