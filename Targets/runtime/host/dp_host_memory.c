/* Memory levels of the host runtime: blocks (what Init and a run take from a level), the buffers opened inside them, and files.
 *
 * Each level is a fixed mapping below 2 GiB, so that addresses fit 32 bits as on the chip. Blocks are placed first-fit in
 * [base, base + size). Without AddressSanitizer a buffer lies at its planned address. With it the planned range is never touched and
 * buffers are laid in a second range with red zones between them; the limits of the level are only accounted.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dp_host_internal.h"

#define RED_ZONE 64u
#define FRESH 0xA5 /* contents of a buffer that has been opened */
#define STALE 0xD5 /* contents of a buffer that has been closed */

static const uintptr_t level_base[DP_LEVELS] = {0x10000000u, 0x1C000000u, 0x30000000u};
static const uintptr_t level_end[DP_LEVELS] = {0x1BFF0000u, 0x2FFF0000u, 0x7FFF0000u};

typedef struct dp_block {
  uintptr_t at; /* planned address */
  uint32_t bytes;
  int arena; /* buffers are opened in it; otherwise it is one buffer */
} dp_block;

typedef struct dp_memory {
  uintptr_t base, mapped; /* begin and bytes of the mapping */
  uintptr_t laid, next;   /* begin of the range where buffers are laid apart, and where to look for room next */
  uint64_t taken;
  dp_block *block;
  size_t blocks, block_room;
  dp_buffer *buffer; /* by rising address */
  size_t buffers, buffer_room;
} dp_memory;

static dp_memory memory[DP_LEVELS];

static uint64_t *peak_of(dp_level level) {
  dp_host_counters *c = &dp_host.count;
  return level == DP_L1 ? &c->l1_peak : level == DP_L2 ? &c->l2_peak : &c->l3_peak;
}

static void *grow(void *list, size_t count, size_t *room, size_t each) {
  if (count < *room) return list;
  *room = *room ? *room * 2 : 64;
  void *more = realloc(list, *room * each);
  if (!more) dp_host_die("no memory for the runtime's own lists");
  return more;
}

void dp_memory_start(void) {
  for (int l = 0; l < DP_LEVELS; l++) {
    dp_memory *m = &memory[l];
    const uint64_t planned = ((uint64_t)dp_host.size[l] + 4095u) & ~(uint64_t)4095;
    m->base = level_base[l];
    m->mapped = planned ? planned : 4096u;
#ifdef DP_HOST_ASAN
    m->mapped += 3u * planned + (1u << 22);
#endif
    if (m->base + m->mapped > level_end[l]) dp_host_die("%s of %u bytes is larger than can be simulated", dp_level_name[l], dp_host.size[l]);
    const void *want = (const void *)m->base;
    const void *got = mmap((void *)m->base, m->mapped, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != want) dp_host_die("the address of %s is taken", dp_level_name[l]);
    m->laid = m->next = m->base + planned + RED_ZONE;
    DP_POISON((void *)m->base, m->mapped);
  }
}

int dp_in_level(dp_level level, uintptr_t at) { return at >= memory[level].base && at < memory[level].base + memory[level].mapped; }

void dp_level_range(dp_level level, uintptr_t *begin, uintptr_t *bytes) {
  *begin = memory[level].base;
  *bytes = memory[level].mapped;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------------------- */

/* Returns the planned address, 0 if there is no room. */
static uintptr_t take_block(dp_level level, uint32_t bytes, int arena) {
  dp_host_start();
  dp_memory *m = &memory[level];
  const uint64_t need = bytes ? ((uint64_t)bytes + 3u) & ~(uint64_t)3 : 4u;
  uintptr_t at = m->base;
  size_t i = 0;
  for (; i < m->blocks && m->block[i].at - at < need; i++) at = (m->block[i].at + m->block[i].bytes + 3u) & ~(uintptr_t)3;
  if (at + (bytes ? bytes : 0u) > m->base + dp_host.size[level]) return 0;
  m->block = (dp_block *)grow(m->block, m->blocks, &m->block_room, sizeof *m->block);
  memmove(m->block + i + 1, m->block + i, (m->blocks - i) * sizeof *m->block);
  m->block[i].at = at;
  m->block[i].bytes = bytes ? bytes : 4u;
  m->block[i].arena = arena;
  m->blocks++;
  m->taken += bytes;
  if (m->taken > *peak_of(level)) *peak_of(level) = m->taken;
  return at;
}

static dp_block *find_block(dp_level level, uintptr_t at) {
  for (size_t i = 0; i < memory[level].blocks; i++)
    if (memory[level].block[i].at == at) return &memory[level].block[i];
  return NULL;
}

static void drop_block(dp_level level, uintptr_t at, uint32_t bytes, int arena) {
  dp_memory *m = &memory[level];
  dp_block *block = find_block(level, at);
  if (!block || block->arena != arena) dp_host_die("%s: free of %#lx, which was not allocated", dp_level_name[level], (unsigned long)at);
  if (block->bytes != (bytes ? bytes : 4u))
    dp_host_die("%s: free of %u bytes at %#lx, allocated were %u", dp_level_name[level], bytes, (unsigned long)at, block->bytes);
  for (size_t i = 0; i < m->buffers; i++)
    if (m->buffer[i].planned >= at && m->buffer[i].planned < at + block->bytes)
      dp_host_die("%s: arena %#lx freed with its buffer at offset %lu open", dp_level_name[level], (unsigned long)at,
                  (unsigned long)(m->buffer[i].planned - at));
  m->taken -= bytes;
  const size_t i = (size_t)(block - m->block);
  m->blocks--;
  memmove(m->block + i, m->block + i + 1, (m->blocks - i) * sizeof *m->block);
}

/* ---- buffers ------------------------------------------------------------------------------------------------------------------- */

/* Index of the first buffer that begins after `at`. */
static size_t upper(const dp_memory *m, uintptr_t at) {
  size_t low = 0, high = m->buffers;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (m->buffer[middle].at > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

const dp_buffer *dp_find_buffer(dp_level level, uintptr_t at, uint64_t bytes) {
  const dp_memory *m = &memory[level];
  const size_t i = upper(m, at);
  if (i == 0) return NULL;
  const dp_buffer *b = &m->buffer[i - 1];
  return at + bytes <= b->at + b->bytes ? b : NULL;
}

#ifdef DP_HOST_ASAN
/* Room for `bytes` with red zones around, from `from` on; 0 if there is none. */
static uintptr_t room_from(const dp_memory *m, uintptr_t from, uint32_t bytes) {
  uintptr_t at = (from + 31u) & ~(uintptr_t)31;
  for (size_t i = upper(m, at) ? upper(m, at) - 1 : 0; i < m->buffers; i++) {
    const dp_buffer *b = &m->buffer[i];
    if (b->at >= at + bytes + RED_ZONE) break;
    if (b->at + b->bytes + RED_ZONE > at) at = (b->at + b->bytes + RED_ZONE + 31u) & ~(uintptr_t)31;
  }
  return at + bytes + RED_ZONE <= m->base + m->mapped ? at : 0;
}

/* Room is looked for behind the last buffer, so that addresses of closed buffers stay poisoned for long. */
static uintptr_t lay_apart(dp_level level, uintptr_t planned, uint32_t bytes) {
  dp_memory *m = &memory[level];
  (void)planned;
  uintptr_t at = room_from(m, m->next, bytes);
  if (!at) at = room_from(m, m->laid, bytes);
  if (!at) dp_host_die("%s: no room to lay %u bytes apart", dp_level_name[level], bytes);
  m->next = at + bytes + RED_ZONE;
  return at;
}
#else
static uintptr_t lay_apart(dp_level level, uintptr_t planned, uint32_t bytes) {
  (void)level;
  (void)bytes;
  return planned;
}
#endif

static uintptr_t open_buffer(dp_level level, uintptr_t planned, uint32_t bytes) {
  dp_memory *m = &memory[level];
  if (bytes == 0) return planned; /* nothing to touch, nothing to watch */
  for (size_t i = 0; i < m->buffers; i++) {
    const dp_buffer *b = &m->buffer[i];
    if (planned < b->planned + b->bytes && b->planned < planned + bytes)
      dp_host_die("%s: buffer of %u bytes at %#lx overlaps the open buffer of %u bytes at %#lx (planned addresses)", dp_level_name[level], bytes,
                  (unsigned long)planned, b->bytes, (unsigned long)b->planned);
  }
  const uintptr_t at = lay_apart(level, planned, bytes);
  const size_t i = upper(m, at);
  m->buffer = (dp_buffer *)grow(m->buffer, m->buffers, &m->buffer_room, sizeof *m->buffer);
  memmove(m->buffer + i + 1, m->buffer + i, (m->buffers - i) * sizeof *m->buffer);
  m->buffer[i].at = at;
  m->buffer[i].planned = planned;
  m->buffer[i].bytes = bytes;
  m->buffers++;
  DP_UNPOISON((void *)at, bytes);
  memset((void *)at, FRESH, bytes);
  return at;
}

static void close_buffer(dp_level level, uintptr_t at, uint32_t bytes) {
  dp_memory *m = &memory[level];
  if (bytes == 0) return;
  const size_t i = upper(m, at);
  if (i == 0 || m->buffer[i - 1].at != at) dp_host_die("%s: %#lx closed, but no buffer is open there", dp_level_name[level], (unsigned long)at);
  const dp_buffer *b = &m->buffer[i - 1];
  if (b->bytes != bytes) dp_host_die("%s: buffer of %u bytes closed with %u bytes", dp_level_name[level], b->bytes, bytes);
  dp_dma_forget(level, b);
  if (dp_host.check != DP_CHECK_NONE) memset((void *)at, STALE, bytes);
  DP_POISON((void *)at, bytes);
  m->buffers--;
  memmove(m->buffer + i - 1, m->buffer + i, (m->buffers - (i - 1)) * sizeof *m->buffer);
}

static uintptr_t open_in_arena(dp_level level, uintptr_t arena, uint32_t offset, uint32_t bytes) {
  const dp_block *block = find_block(level, arena);
  if (!block || !block->arena) dp_host_die("%s: buffer opened in %#lx, which is no arena", dp_level_name[level], (unsigned long)arena);
  if ((uint64_t)offset + bytes > block->bytes)
    dp_host_die("%s: buffer of %u bytes at offset %u leaves its arena of %u bytes", dp_level_name[level], bytes, offset, block->bytes);
  if ((offset & 3u) != 0) dp_host_die("%s: offset %u is not aligned to 4 bytes", dp_level_name[level], offset);
  return open_buffer(level, arena + offset, bytes);
}

void *dp_open_l1(void *arena, uint32_t offset, uint32_t bytes) { return (void *)open_in_arena(DP_L1, (uintptr_t)arena, offset, bytes); }
void *dp_open_l2(void *arena, uint32_t offset, uint32_t bytes) { return (void *)open_in_arena(DP_L2, (uintptr_t)arena, offset, bytes); }
dp_l3 dp_open_l3(dp_l3 arena, uint32_t offset, uint32_t bytes) { return open_in_arena(DP_L3, arena, offset, bytes); }
void dp_close_l1(void *buffer, uint32_t bytes) { close_buffer(DP_L1, (uintptr_t)buffer, bytes); }
void dp_close_l2(void *buffer, uint32_t bytes) { close_buffer(DP_L2, (uintptr_t)buffer, bytes); }
void dp_close_l3(dp_l3 buffer, uint32_t bytes) { close_buffer(DP_L3, buffer, bytes); }

/* ---- allocations --------------------------------------------------------------------------------------------------------------- */

dp_l3 dp_arena_l3(uint32_t bytes) { return take_block(DP_L3, bytes, 1); }
void dp_arena_l3_free(dp_l3 address, uint32_t bytes) { drop_block(DP_L3, address, bytes, 1); }
void *dp_arena_l2(uint32_t bytes) { return (void *)take_block(DP_L2, bytes, 1); }
void dp_arena_l2_free(void *address, uint32_t bytes) { drop_block(DP_L2, (uintptr_t)address, bytes, 1); }
void *dp_arena_l1(uint32_t bytes) { return (void *)take_block(DP_L1, bytes, 1); }
void dp_arena_l1_free(void *address, uint32_t bytes) { drop_block(DP_L1, (uintptr_t)address, bytes, 1); }

dp_l3 cl_ram_malloc(uint32_t bytes) {
  const uintptr_t planned = take_block(DP_L3, bytes, 0);
  if (!planned) return 0;
  dp_host.count.l3_allocations++;
  dp_host.count.l3_bytes += bytes;
  return open_buffer(DP_L3, planned, bytes);
}

void cl_ram_free(dp_l3 address, uint32_t bytes) {
  const dp_buffer *buffer = bytes ? dp_find_buffer(DP_L3, address, bytes) : NULL;
  const uintptr_t planned = buffer ? buffer->planned + (address - buffer->at) : address;
  const dp_block *block = find_block(DP_L3, planned);
  if (block && !block->arena && buffer) close_buffer(DP_L3, address, bytes);
  drop_block(DP_L3, planned, bytes, 0);
}

/* ---- files --------------------------------------------------------------------------------------------------------------------- */

/* Part of a file that has `total` bytes. */
static int load(void *to, const char *name, uint32_t total, uint32_t offset, uint32_t bytes) {
  char path[4096];
  const char *folder = getenv("DP_HOST_FILES");
  if (folder && name[0] != '/')
    snprintf(path, sizeof path, "%s/%s", folder, name);
  else
    snprintf(path, sizeof path, "%s", name);
  FILE *file = fopen(path, "rb");
  if (!file) return -1;
  int good = fseek(file, 0, SEEK_END) == 0 && ftell(file) == (long)total && fseek(file, (long)offset, SEEK_SET) == 0;
  good = good && (bytes == 0 || fread(to, 1, bytes, file) == bytes);
  fclose(file);
  return good ? 0 : -1;
}

int load_file_to_ram(dp_l3 address, const char *name, uint32_t bytes) {
  dp_host_start();
  if (bytes && !dp_find_buffer(DP_L3, address, bytes)) dp_host_die("file %s of %u bytes does not fit its L3 allocation", name, bytes);
  if (load((void *)address, name, bytes, 0, bytes) != 0) return -1;
  dp_host.count.l3_files++;
  dp_host.count.l3_file_bytes += bytes;
  return 0;
}

int dp_load_part_to_l2(void *address, const char *name, uint32_t total, uint32_t offset, uint32_t bytes) {
  dp_host_start();
  if (offset > total || bytes > total - offset) return -1;
  if (bytes && dp_in_level(DP_L2, (uintptr_t)address) && !dp_find_buffer(DP_L2, (uintptr_t)address, bytes))
    dp_host_die("%u bytes of file %s do not fit their L2 buffer", bytes, name);
  if (load(address, name, total, offset, bytes) != 0) return -1;
  dp_host.count.l2_files += offset == 0;
  dp_host.count.l2_file_bytes += bytes;
  return 0;
}

void dp_memory_finish(void) {
  for (int l = 0; l < DP_LEVELS; l++)
    if (memory[l].blocks)
      dp_host_die("leak: %zu allocations of %s never freed, the first of %u bytes", memory[l].blocks, dp_level_name[l], memory[l].block[0].bytes);
}
