/* Core against core in L1, byte by byte. ThreadSanitizer keeps the last four accesses to every eight bytes, so cores that write whole arrays
 * of bytes twice can go unnoticed; here nothing is forgotten. The program is linked with --wrap for the sanitizer's calls (simulate/host.py).
 *
 * Between a fork, its barriers and its end, a core must not access what another core writes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dp_host_internal.h"

#ifdef DP_HOST_TSAN
#include <sys/mman.h>

/* Of one byte: the last phase in which it was written and read, and by which cores (bits). */
typedef struct dp_seen {
  uint64_t written, read;
  uint64_t writers, readers;
} dp_seen;

static dp_seen *seen;
static uintptr_t begin, bytes;

static int start(void) {
  dp_level_range(DP_L1, &begin, &bytes);
  void *map = mmap(NULL, bytes * sizeof *seen, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) dp_host_die("no memory for the runtime's own lists");
  seen = (dp_seen *)map;
  return 1;
}

static void see(const void *address, uint32_t size, int writes) {
  int core;
  const uint64_t phase = dp_host_phase(&core);
  if (!phase || (!seen && !start()) || (uintptr_t)address - begin >= bytes) return;
  const uint64_t me = (uint64_t)1 << core;
  dp_seen *s = &seen[(uintptr_t)address - begin];
  for (uint32_t i = 0; i < size && (uintptr_t)address - begin + i < bytes; i++, s++) {
    if (s->written == phase && (s->writers & ~me) != 0)
      dp_host_die("data race: core %d %s the byte at %#lx, which another core writes", core, writes ? "writes" : "reads",
                  (unsigned long)((uintptr_t)address + i));
    if (writes && s->read == phase && (s->readers & ~me) != 0)
      dp_host_die("data race: core %d writes the byte at %#lx, which another core reads", core, (unsigned long)((uintptr_t)address + i));
    uint64_t *last = writes ? &s->written : &s->read, *cores = writes ? &s->writers : &s->readers;
    *cores = *last == phase ? *cores | me : me;
    *last = phase;
  }
}

#define WATCH(SIZE)                                                                                            \
  void __tsan_read##SIZE##_pc(void *address, void *pc);                                                        \
  void __tsan_write##SIZE##_pc(void *address, void *pc);                                                       \
  void __wrap___tsan_read##SIZE(void *address);                                                                \
  void __wrap___tsan_write##SIZE(void *address);                                                               \
  void __wrap___tsan_read##SIZE(void *address) {                                                               \
    see(address, SIZE, 0);                                                                                     \
    __tsan_read##SIZE##_pc(address, __builtin_return_address(0));                                              \
  }                                                                                                            \
  void __wrap___tsan_write##SIZE(void *address) {                                                              \
    see(address, SIZE, 1);                                                                                     \
    __tsan_write##SIZE##_pc(address, __builtin_return_address(0));                                             \
  }

#ifdef __cplusplus
extern "C" {
#endif
WATCH(1)
WATCH(2)
WATCH(4)
WATCH(8)
#ifdef __cplusplus
}
#endif
#else
typedef int dp_no_race; /* nothing in other builds */
#endif
