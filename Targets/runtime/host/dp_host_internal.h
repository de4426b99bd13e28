/* What the files of the host runtime share. */
#ifndef DP_HOST_INTERNAL_H
#define DP_HOST_INTERNAL_H
#include <stddef.h>
#include <stdint.h>

#include "dp_host.h"

#ifdef DP_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define DP_POISON(p, n) __asan_poison_memory_region((p), (n))
#define DP_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define DP_POISON(p, n) ((void)(p), (void)(n))
#define DP_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#ifdef DP_HOST_TSAN
/* The fiber interface of ThreadSanitizer; it has no header in gcc. */
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_set_fiber_name(void *fiber, const char *name);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define DP_NO_SYNC 1u /* switching is no synchronisation */
#endif

typedef enum dp_level { DP_L1, DP_L2, DP_L3, DP_LEVELS } dp_level;
typedef enum dp_check { DP_CHECK_NONE, DP_CHECK_LAZY, DP_CHECK_EAGER, DP_CHECK_TSAN } dp_check;

/* A buffer that transfers may touch: `bytes` at `at`; `planned` is its address in the level (equal to `at` unless laid apart). */
typedef struct dp_buffer {
  uintptr_t at, planned;
  uint32_t bytes;
} dp_buffer;

typedef struct dp_host_state {
  dp_check check;
  uint32_t size[DP_LEVELS];
  uint32_t cores;
  uint32_t random;
  int configured;
  int in_fork;
  uint32_t step;
  int step_open;
  dp_host_counters count;
} dp_host_state;

extern dp_host_state dp_host;
extern const char *const dp_level_name[DP_LEVELS];

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
void dp_host_die(const char *format, ...);

/* Reads the environment and maps the levels, once. */
void dp_host_start(void);
void dp_memory_start(void);
/* Whether the address belongs to the level's mapping. */
int dp_in_level(dp_level level, uintptr_t at);
/* Begin and bytes of the level's mapping. */
void dp_level_range(dp_level level, uintptr_t *begin, uintptr_t *bytes);
/* The running core, and a number that changes with every fork and every barrier that it passes; 0 outside of kernels. */
uint64_t dp_host_phase(int *running);
/* The open buffer that holds all of [at, at + bytes), or NULL. */
const dp_buffer *dp_find_buffer(dp_level level, uintptr_t at, uint64_t bytes);
void dp_memory_finish(void);
/* Of the sequence that DP_HOST_SEED begins. */
uint32_t dp_host_random(void);

/* A buffer is closed: dies if a transfer in flight touches it. */
void dp_dma_forget(dp_level level, const dp_buffer *buffer);
void dp_dma_finish(void);

/* The transfer as ThreadSanitizer sees it: reading bytes, and writing bytes that have been moved there, which it does not see. */
void dp_agent_read(const uint8_t *from, size_t bytes);
void dp_agent_write(uint8_t *to, size_t bytes);
void dp_agent_move(uint8_t *to, const uint8_t *from, size_t bytes);

#endif
