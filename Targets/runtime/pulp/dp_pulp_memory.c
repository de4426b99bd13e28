/* Memory of the three levels, and files: those that a project brings lie in the HyperFlash, behind a directory.
 *
 * Flash image, little-endian: "DPFLASH1", uint32 number of files, uint32 0; per file 64 bytes of name (ended by 0), uint32 offset, uint32 bytes,
 * 8 bytes 0; then the files at multiples of 4. */
#include <string.h>

#include "dp_pulp.h"

#define HOLES 32
#define BOUNCE 4096u
#define NAME_BYTES 64u

extern char __l1_heap[], __l1_end[], __l2_heap[], __l2_end[];

/* ---- allocation: first fit over a list of holes, in ascending order ------------------------------------------------------------------- */

typedef struct hole {
  uintptr_t begin, end;
} hole;

typedef struct pool {
  hole list[HOLES];
  uint32_t holes, alignment;
} pool;

static pool l1, l2, l3;
dp_pulp_loads dp_pulp_loaded;

static void pool_start(pool *p, uintptr_t begin, uintptr_t end, uint32_t alignment) {
  p->list[0].begin = begin;
  p->list[0].end = end;
  p->holes = 1;
  p->alignment = alignment;
}

static uint32_t rounded(const pool *p, uint32_t bytes) {
  return bytes == 0 ? p->alignment : (bytes + p->alignment - 1u) & ~(p->alignment - 1u);
}

static uintptr_t pool_take(pool *p, uint32_t bytes) {
  const uint32_t size = rounded(p, bytes);
  for (uint32_t i = 0; i < p->holes; i++) {
    hole *h = &p->list[i];
    if (h->end - h->begin >= size) {
      h->begin += size;
      return h->begin - size;
    }
  }
  return 0;
}

static void pool_give(pool *p, uintptr_t begin, uint32_t bytes) {
  const uintptr_t end = begin + rounded(p, bytes);
  uint32_t i = 0;
  while (i < p->holes && p->list[i].end < begin) i++;
  if (i < p->holes && p->list[i].end == begin) {
    p->list[i].end = end;
    if (i + 1u < p->holes && p->list[i + 1u].begin == end) {
      p->list[i].end = p->list[i + 1u].end;
      p->holes--;
      memmove(&p->list[i + 1u], &p->list[i + 2u], (p->holes - i - 1u) * sizeof(hole));
    }
  } else if (i < p->holes && p->list[i].begin == end) {
    p->list[i].begin = begin;
  } else if (p->holes < HOLES) {
    memmove(&p->list[i + 1u], &p->list[i], (p->holes - i) * sizeof(hole));
    p->list[i].begin = begin;
    p->list[i].end = end;
    p->holes++;
  } /* else it is lost: so many networks do not come and go out of order */
}

void dp_memory_start(void) {
  pool_start(&l1, (uintptr_t)__l1_heap, (uintptr_t)__l1_end, 8);
  pool_start(&l2, (uintptr_t)__l2_heap, (uintptr_t)__l2_end, 8);
  pool_start(&l3, L3_BASE, L3_BASE + DP_L3_BYTES, 4);
}

void *dp_arena_l1(uint32_t bytes) { return (void *)pool_take(&l1, bytes); }
void dp_arena_l1_free(void *address, uint32_t bytes) { pool_give(&l1, (uintptr_t)address, bytes); }
void *dp_arena_l2(uint32_t bytes) { return (void *)pool_take(&l2, bytes); }
void dp_arena_l2_free(void *address, uint32_t bytes) { pool_give(&l2, (uintptr_t)address, bytes); }
dp_l3 dp_arena_l3(uint32_t bytes) { return pool_take(&l3, bytes); }
void dp_arena_l3_free(dp_l3 address, uint32_t bytes) { pool_give(&l3, address, bytes); }

dp_l3 cl_ram_malloc(uint32_t bytes) {
  const dp_l3 address = pool_take(&l3, bytes);
  dp_pulp_loaded.allocations += address != 0;
  dp_pulp_loaded.bytes += address ? bytes : 0;
  return address;
}

void cl_ram_free(dp_l3 address, uint32_t bytes) { pool_give(&l3, address, bytes); }

/* ---- files ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct entry {
  char name[NAME_BYTES];
  uint32_t offset, bytes, zero[2];
} entry;

static DP_ALIGN(8) uint8_t bounce[BOUNCE];

/* Offset of a file in the flash, or 0. Keeps what it has found, for a file that is read in parts. */
static uint32_t find(const char *name, uint32_t bytes) {
  static entry found;
  uint32_t head[4], files;
  if (found.offset && strncmp(found.name, name, NAME_BYTES) == 0) return found.bytes == bytes ? found.offset : 0;
  dp_hyper_copy(1, head, 0, sizeof head, DP_IN);
  if (memcmp(head, "DPFLASH1", 8) != 0) return 0;
  files = head[2];
  const uint32_t each = BOUNCE / sizeof(entry);
  for (uint32_t first = 0; first < files; first += each) {
    const uint32_t count = files - first < each ? files - first : each;
    dp_hyper_copy(1, bounce, (uint32_t)(sizeof head + first * sizeof(entry)), (uint32_t)(count * sizeof(entry)), DP_IN);
    for (uint32_t i = 0; i < count; i++) {
      const entry *e = (const entry *)(const void *)bounce + i;
      if (strncmp(e->name, name, NAME_BYTES) == 0) {
        found = *e;
        return e->bytes == bytes ? e->offset : 0;
      }
    }
  }
  return 0;
}

int load_file_to_ram(dp_l3 address, const char *name, uint32_t bytes) {
  const uint32_t from = find(name, bytes);
  if (from == 0) return -1;
  for (uint32_t at = 0; at < bytes; at += BOUNCE) {
    const uint32_t part = bytes - at < BOUNCE ? bytes - at : BOUNCE;
    dp_hyper_copy(1, bounce, from + at, part, DP_IN);
    dp_hyper_copy(0, bounce, (uint32_t)address - L3_BASE + at, part, DP_OUT);
  }
  dp_pulp_loaded.files++;
  dp_pulp_loaded.file_bytes += bytes;
  return 0;
}

/* The flash is read from multiples of 4 on, in whole words; what is not goes by way of the buffer. */
int dp_load_part_to_l2(void *address, const char *name, uint32_t total, uint32_t offset, uint32_t bytes) {
  const uint32_t file = find(name, total), from = file + offset;
  uint8_t *const to = (uint8_t *)address;
  uint32_t now;
  if (file == 0 || offset > total || bytes > total - offset) return -1;
  for (uint32_t at = 0; at < bytes; at += now) {
    const uint32_t skip = (from + at) & 3u;
    now = skip ? 0 : (bytes - at) & ~3u;
    if (now) {
      dp_hyper_copy(1, to + at, from + at, now, DP_IN);
    } else {
      now = bytes - at < 4u - skip ? bytes - at : 4u - skip;
      dp_hyper_copy(1, bounce, from + at - skip, skip + now, DP_IN);
      memcpy(to + at, bounce + skip, now);
    }
  }
  dp_pulp_loaded.l2_files += offset == 0;
  dp_pulp_loaded.l2_file_bytes += bytes;
  return 0;
}
