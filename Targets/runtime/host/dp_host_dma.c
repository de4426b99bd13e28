/* The DMA engines of the host runtime: transfers in flight, when their bytes move, and what they must not do.
 *
 * lazy:  bytes move at the wait for their own or, by chance, for another handle: handles in a scrambled order, the commands of each in
 *        order. Until its own wait a destination is poisoned and a source must not change; until it moves a destination holds garbage.
 * eager: bytes move at once; the destination stays poisoned until the wait.
 * tsan:  bytes move at once, on a fiber of the engine that only the issue and the wait order with the cores.
 * none:  bytes move at once; only addresses and sizes are checked.
 * In all but `none` a transfer must not write what another transfer in flight reads or writes. What an L3 read overwrites past its end
 * counts as written by it and is overwritten indeed, in the order of the commands; the rules are in dp_runtime.h.
 */
#include <stdlib.h>
#include <string.h>

#include "dp_host_internal.h"

#define IN_FLIGHT 0x5A /* contents of a destination until the wait */
#define ROUNDED 0xC3   /* what an L3 read writes past its end */

/* What an engine takes, by the outer of its two levels; the platform file says it. */
typedef struct dp_engine {
  uint32_t max_bytes, alignment, read_rounding;
} dp_engine;

static dp_engine engine[DP_LEVELS] = {{0, 1, 1}, {DP_DMA_MAX_BYTES, 1, 1}, {DP_DMA_MAX_BYTES, 1, 4}};

/* Rows of one side of a command. */
typedef struct dp_rows {
  uintptr_t at;
  uint32_t row_bytes, rows, stride;
} dp_rows;

typedef struct dp_copy {
  dp_rows to, from;
  dp_rows tail;      /* bytes overwritten past the end of `to`; no rows: none */
  uint64_t hash;     /* of the source at issue */
} dp_copy;

/* The commands of one handle. */
typedef struct dp_flight {
  uint32_t id;
  int used;
  dp_level outer; /* the outer of the two levels */
  dp_copy *copy;
  size_t copies, room, moved; /* moved: lazy commands that are carried out */
  uintptr_t to_lo, to_hi, tail_hi, from_lo, from_hi; /* around all commands; tail_hi: with the tails */
  int to_rises, from_rises;                 /* every command begins behind the one before, as those of one tile do */
  void *fiber;
  char sync_issue, sync_done;
} dp_flight;

static dp_flight **flight;
static size_t flights;
static uint32_t next_id;

/* Bytes behind rows that are overwritten and not written again since: few, those of the last read into each buffer. */
static uintptr_t *spoilt;
static size_t spoilts, spoilt_room;

static uintptr_t rows_end(const dp_rows *r) { return r->at + (uintptr_t)(r->rows - 1) * r->stride + r->row_bytes; }

/* Whether the bytes [lo, hi) touch a row. */
static int rows_touch(const dp_rows *r, uintptr_t lo, uintptr_t hi) {
  if (hi <= r->at || lo >= rows_end(r)) return 0;
  if (r->stride <= r->row_bytes) return 1;
  uintptr_t row = lo > r->at ? (lo - r->at) / r->stride : 0;
  if (r->at + row * r->stride + r->row_bytes <= lo) row++;
  return row < r->rows && r->at + row * r->stride < hi;
}

static int rows_meet(const dp_rows *a, const dp_rows *b) {
  if (rows_end(a) <= b->at || rows_end(b) <= a->at) return 0;
  if (a->rows > b->rows) return rows_meet(b, a);
  for (uint32_t i = 0; i < a->rows; i++) {
    const uintptr_t lo = a->at + (uintptr_t)i * a->stride;
    if (rows_touch(b, lo, lo + a->row_bytes)) return 1;
  }
  return 0;
}

static uint64_t hash_rows(const dp_rows *r) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (uint32_t i = 0; i < r->rows; i++) {
    const uint8_t *p = (const uint8_t *)(r->at + (uintptr_t)i * r->stride);
    uint32_t left = r->row_bytes;
    for (; left >= 8; left -= 8, p += 8) {
      uint64_t word;
      memcpy(&word, p, 8);
      hash = (hash ^ word) * 0x100000001B3u;
      hash ^= hash >> 29;
    }
    for (; left > 0; left--, p++) hash = (hash ^ *p) * 0x100000001B3u;
  }
  return hash;
}

static void poison_rows(const dp_rows *r) {
#ifdef DP_HOST_ASAN
  for (uint32_t i = 0; i < r->rows; i++) DP_POISON((void *)(r->at + (uintptr_t)i * r->stride), r->row_bytes);
#else
  (void)r;
#endif
}

static void unpoison_rows(const dp_rows *r) {
#ifdef DP_HOST_ASAN
  for (uint32_t i = 0; i < r->rows; i++) DP_UNPOISON((void *)(r->at + (uintptr_t)i * r->stride), r->row_bytes);
#else
  (void)r;
#endif
}

static void copy_rows(const dp_copy *c) {
  for (uint32_t i = 0; i < c->to.rows; i++) {
    uint8_t *to = (uint8_t *)(c->to.at + (uintptr_t)i * c->to.stride);
    const uint8_t *from = (const uint8_t *)(c->from.at + (uintptr_t)i * c->from.stride);
    if (dp_host.check == DP_CHECK_TSAN)
      dp_agent_move(to, from, c->to.row_bytes);
    else
      memcpy(to, from, c->to.row_bytes);
  }
}

/* What the hardware writes past the end of an L3 read. The bytes may be part of another transfer in flight, so they can be poisoned. */
#if defined(__GNUC__)
__attribute__((no_sanitize_address))
#endif
static void round_up(const dp_copy *c) {
  volatile uint8_t *end = (volatile uint8_t *)c->tail.at;
  for (uint32_t i = 0; i < c->tail.row_bytes; i++) end[i] = ROUNDED;
}

/* ---- checks of one command ----------------------------------------------------------------------------------------------------- */

/* The rows must lie in one open buffer of the level, or, for L2, in data of the program outside all levels. */
static const dp_buffer *check_side(const char *what, dp_level level, const dp_rows *r) {
  const uint64_t bytes = rows_end(r) - r->at;
  const dp_buffer *buffer = dp_find_buffer(level, r->at, bytes);
  if (buffer) return buffer;
  int known = 0;
  for (int l = 0; l < DP_LEVELS; l++) known |= dp_in_level((dp_level)l, r->at);
  if (level != DP_L2 || known || r->at < 4096u)
    dp_host_die("%s: %u rows of %u bytes, stride %u, at %#lx do not lie in one open buffer of %s", what, r->rows, r->row_bytes, r->stride,
                (unsigned long)r->at, dp_level_name[level]);
#ifdef DP_HOST_ASAN
  for (uint32_t i = 0; i < r->rows; i++)
    if (__asan_region_is_poisoned((void *)(r->at + (uintptr_t)i * r->stride), r->row_bytes))
      dp_host_die("%s: row %u of %u bytes at %#lx leaves its array in L2", what, i, r->row_bytes, (unsigned long)(r->at + (uintptr_t)i * r->stride));
#endif
  return NULL;
}

typedef enum dp_side { DP_FROM, DP_TO, DP_TO_AND_TAIL } dp_side;

static uintptr_t side_end(const dp_copy *c, dp_side side) {
  return rows_end(side == DP_FROM ? &c->from : &c->to) + (side == DP_TO_AND_TAIL ? c->tail.row_bytes : 0u);
}

/* Whether one side of a flight's commands meets the rows. Of a side that rises the ends rise too, also with the tails, because a tail is
 * shorter than any rounded row; so most commands need no look. */
static int flight_meets(const dp_flight *f, dp_side side, const dp_rows *r) {
  const uintptr_t lo = side == DP_FROM ? f->from_lo : f->to_lo, end = rows_end(r);
  const uintptr_t hi = side == DP_FROM ? f->from_hi : side == DP_TO ? f->to_hi : f->tail_hi;
  if (r->at >= hi || end <= lo) return 0;
  const int rises = side == DP_FROM ? f->from_rises : f->to_rises;
  size_t first = 0, last = f->copies;
  while (rises && first < last) {
    const size_t middle = (first + last) / 2;
    if (side_end(&f->copy[middle], side) > r->at)
      last = middle;
    else
      first = middle + 1;
  }
  for (size_t i = first; i < f->copies; i++) {
    const dp_copy *other = &f->copy[i];
    const dp_rows *rows = side == DP_FROM ? &other->from : &other->to;
    if (rises && rows->at >= end) return 0;
    if (rows_meet(r, rows)) return 1;
    if (side == DP_TO_AND_TAIL && other->tail.rows && rows_meet(r, &other->tail)) return 1;
  }
  return 0;
}

static void check_conflicts(const char *what, const dp_flight *mine, const dp_copy *c) {
  for (size_t i = 0; i < flights; i++) {
    const dp_flight *f = flight[i];
    if (!f->used || f == mine) continue;
    for (const dp_rows *written = &c->to; written; written = written == &c->to && c->tail.rows ? &c->tail : NULL) {
      const char *where = written == &c->to ? "" : " past its end";
      if (flight_meets(f, DP_TO_AND_TAIL, written))
        dp_host_die("%s: writes%s what another transfer in flight writes, at %#lx", what, where, (unsigned long)written->at);
      if (flight_meets(f, DP_FROM, written))
        dp_host_die("%s: writes%s what another transfer in flight reads, at %#lx", what, where, (unsigned long)written->at);
    }
    if (flight_meets(f, DP_TO_AND_TAIL, &c->from))
      dp_host_die("%s: reads what another transfer in flight writes, at %#lx", what, (unsigned long)c->from.at);
  }
}

/* Commands of one handle must not write the same bytes, and must not overwrite past their end what an earlier one has written. */
static void check_own(const char *what, const dp_flight *mine, const dp_copy *c) {
  if (flight_meets(mine, DP_TO, &c->to))
    dp_host_die("%s: two commands of one handle write the same bytes, at %#lx", what, (unsigned long)c->to.at);
  if (c->tail.rows && flight_meets(mine, DP_TO, &c->tail))
    dp_host_die("%s: a read is rounded up and overwrites %u bytes past its end, of which an earlier command of its handle wrote some, at %#lx",
                what, c->tail.row_bytes, (unsigned long)c->tail.at);
}

/* Follows which bytes are overwritten past the end of a read; nobody may read them until they are written again. */
static void check_spoilt(const char *what, const dp_copy *c) {
  size_t kept = 0;
  for (size_t i = 0; i < spoilts; i++) {
    if (rows_touch(&c->from, spoilt[i], spoilt[i] + 1u))
      dp_host_die("%s: reads a byte that a read has overwritten past its end, at %#lx", what, (unsigned long)spoilt[i]);
    if (!rows_touch(&c->to, spoilt[i], spoilt[i] + 1u) && !(c->tail.rows && rows_touch(&c->tail, spoilt[i], spoilt[i] + 1u)))
      spoilt[kept++] = spoilt[i];
  }
  spoilts = kept;
  if (spoilts + c->tail.row_bytes > spoilt_room) {
    spoilt_room = 2 * spoilt_room + c->tail.row_bytes;
    spoilt = (uintptr_t *)realloc(spoilt, spoilt_room * sizeof *spoilt);
    if (!spoilt) dp_host_die("no memory for the runtime's own lists");
  }
  for (uint32_t i = 0; i < c->tail.row_bytes; i++) spoilt[spoilts++] = c->tail.at + i;
}

/* The command against what the engine takes. */
static void check_engine(const char *what, dp_level outer, uintptr_t near_side, uintptr_t far_side, uint32_t row_bytes, uint32_t rows,
                         uint32_t stride) {
  const dp_engine *e = &engine[outer];
  if (rows < 1 || row_bytes < 1) dp_host_die("%s: a command of %u rows of %u bytes", what, rows, row_bytes);
  if ((uint64_t)rows * row_bytes > e->max_bytes)
    dp_host_die("%s: a command of %llu bytes, the most is %u", what, (unsigned long long)rows * row_bytes, e->max_bytes);
  if (rows > 1 && stride < row_bytes) dp_host_die("%s: rows of %u bytes that lie %u bytes apart", what, row_bytes, stride);
  if (near_side % e->alignment || far_side % e->alignment || row_bytes % e->alignment || (rows > 1 && stride % e->alignment))
    dp_host_die("%s: rows of %u bytes, stride %u, from or to %#lx and %#lx are not aligned to %u bytes", what, row_bytes, stride,
                (unsigned long)near_side, (unsigned long)far_side, e->alignment);
}

/* ---- flights ------------------------------------------------------------------------------------------------------------------- */

static dp_flight *new_flight(dp_dma *handle, dp_level outer) {
  dp_flight *f = NULL;
  for (size_t i = 0; i < flights && !f; i++)
    if (!flight[i]->used) f = flight[i];
  if (!f) {
    dp_flight **more = (dp_flight **)realloc(flight, (flights + 1) * sizeof *flight);
    f = (dp_flight *)calloc(1, sizeof *f);
    if (!more || !f) dp_host_die("no memory for the runtime's own lists");
    flight = more;
    flight[flights++] = f;
#ifdef DP_HOST_TSAN
    f->fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(f->fiber, "DMA");
#endif
  }
  f->used = 1;
  f->id = ++next_id;
  f->outer = outer;
  f->copies = f->moved = 0;
  f->to_lo = f->from_lo = UINTPTR_MAX;
  f->to_hi = f->tail_hi = f->from_hi = 0;
  f->to_rises = f->from_rises = 1;
  handle->id = f->id;
  handle->link = f;
  return f;
}

static dp_flight *flight_of(const char *what, const dp_dma *handle, dp_level outer) {
  dp_flight *f = (dp_flight *)handle->link;
  int known = 0;
  for (size_t i = 0; i < flights; i++) known |= flight[i] == f;
  if (!known || !f->used || f->id != handle->id || f->copies != handle->pending) dp_host_die("%s: the handle is damaged or out of date", what);
  if (f->outer != outer) dp_host_die("%s: the handle has transfers of the other engine in flight", what);
  return f;
}

static void add_to_flight(dp_flight *f, const dp_copy *c) {
  if (f->copies == f->room) {
    f->room = f->room ? f->room * 2 : 16;
    f->copy = (dp_copy *)realloc(f->copy, f->room * sizeof *f->copy);
    if (!f->copy) dp_host_die("no memory for the runtime's own lists");
  }
  f->copy[f->copies++] = *c;
  f->to_rises &= c->to.at >= f->to_hi;
  f->from_rises &= c->from.at >= f->from_hi;
  if (c->to.at < f->to_lo) f->to_lo = c->to.at;
  if (c->from.at < f->from_lo) f->from_lo = c->from.at;
  if (rows_end(&c->to) > f->to_hi) f->to_hi = rows_end(&c->to);
  if (side_end(c, DP_TO_AND_TAIL) > f->tail_hi) f->tail_hi = side_end(c, DP_TO_AND_TAIL);
  if (rows_end(&c->from) > f->from_hi) f->from_hi = rows_end(&c->from);
}

#ifdef DP_HOST_TSAN
/* Accesses the rows of one side, rows that touch as one. */
static void see_rows(const dp_rows *r, int writes) {
  const int dense = r->stride == r->row_bytes;
  const size_t bytes = dense ? (size_t)r->rows * r->row_bytes : r->row_bytes;
  for (uint32_t i = 0; i < (dense ? 1u : r->rows); i++) {
    const uintptr_t at = r->at + (uintptr_t)i * r->stride;
    if (writes)
      dp_agent_write((uint8_t *)at, bytes);
    else
      dp_agent_read((const uint8_t *)at, bytes);
  }
}

static void copy_as_engine(dp_flight *f, const dp_copy *c) {
  void *me = __tsan_get_current_fiber();
  __tsan_release(&f->sync_issue);
  __tsan_switch_to_fiber(f->fiber, DP_NO_SYNC);
  __tsan_acquire(&f->sync_issue);
  copy_rows(c);
  see_rows(&c->from, 0);
  see_rows(&c->to, 1);
  __tsan_release(&f->sync_done);
  __tsan_switch_to_fiber(me, DP_NO_SYNC);
}
#endif

static void start_copy(dp_flight *f, dp_copy *c) {
  switch (dp_host.check) {
    case DP_CHECK_LAZY:
      c->hash = hash_rows(&c->from);
      for (uint32_t i = 0; i < c->to.rows; i++) memset((void *)(c->to.at + (uintptr_t)i * c->to.stride), IN_FLIGHT, c->to.row_bytes);
      poison_rows(&c->to);
      break;
    case DP_CHECK_EAGER:
      copy_rows(c);
      round_up(c);
      poison_rows(&c->to);
      break;
    case DP_CHECK_TSAN:
#ifdef DP_HOST_TSAN
      copy_as_engine(f, c);
#endif
      round_up(c);
      break;
    default:
      copy_rows(c);
      round_up(c);
  }
  (void)f;
}

/* Lazy: carries out the next command of a handle. */
static void move_next(dp_flight *f) {
  const dp_copy *c = &f->copy[f->moved++];
  unpoison_rows(&c->to);
  copy_rows(c);
  round_up(c);
  poison_rows(&c->to);
}

/* Lazy: carries out what is left of a handle's commands, and by chance some of other handles in between. */
static void carry_out(dp_flight *f) {
  while (f->moved < f->copies) {
    dp_flight *any = flight[dp_host_random() % flights];
    move_next(any->used && any->moved < any->copies ? any : f);
  }
}

static void end_copy(const char *what, const dp_copy *c) {
  if (dp_host.check == DP_CHECK_LAZY) {
    if (hash_rows(&c->from) != c->hash)
      dp_host_die("%s: the source of a transfer changed between issue and wait: %u rows of %u bytes at %#lx", what, c->from.rows,
                  c->from.row_bytes, (unsigned long)c->from.at);
  }
  if (dp_host.check == DP_CHECK_LAZY || dp_host.check == DP_CHECK_EAGER) unpoison_rows(&c->to);
}

/* ---- the two engines ----------------------------------------------------------------------------------------------------------- */

void dp_host_configure_dma(uint32_t outer, uint32_t max_bytes, uint32_t alignment, uint32_t read_rounding) {
  if (outer < 2 || outer > 3 || max_bytes < 1 || alignment < 1 || read_rounding < 1) dp_host_die("dp_host_configure_dma: no such engine");
  const dp_engine e = {max_bytes, alignment, read_rounding};
  engine[outer == 2 ? DP_L2 : DP_L3] = e;
}

static void issue(dp_dma *handle, dp_level outer, uintptr_t near_side, uintptr_t far_side, uint32_t row_bytes, uint32_t rows, uint32_t stride,
                  dp_direction direction) {
  const dp_level inner = outer == DP_L3 ? DP_L2 : DP_L1;
  const char *what = outer == DP_L3 ? (direction == DP_IN ? "L3->L2" : "L2->L3") : (direction == DP_IN ? "L2->L1" : "L1->L2");
  dp_host_start();
  if (dp_host.in_fork) dp_host_die("%s: a kernel programs a transfer", what);
  check_engine(what, outer, near_side, far_side, row_bytes, rows, stride);
  const dp_rows near_rows = {near_side, row_bytes * rows, 1, row_bytes * rows}, far_rows = {far_side, row_bytes, rows, rows > 1 ? stride : row_bytes};
  const dp_buffer *near_buffer = check_side(what, inner, &near_rows);
  check_side(what, outer, &far_rows);
  dp_copy c;
  memset(&c, 0, sizeof c);
  /* both sides are walked by the rows of the far side */
  c.to = c.from = far_rows;
  dp_rows *near_walk = direction == DP_IN ? &c.to : &c.from;
  near_walk->at = near_side;
  near_walk->stride = row_bytes;
  const uint32_t unit = direction == DP_IN ? engine[outer].read_rounding : 1u;
  const uint32_t past = (unit - (rows > 1 && stride != row_bytes ? row_bytes : rows * row_bytes) % unit) % unit;
  if (past) {
    if (!near_buffer) dp_host_die("%s: a read of %u bytes is rounded up and goes to no buffer", what, rows * row_bytes);
    if (near_side + rows * row_bytes + past > near_buffer->at + near_buffer->bytes)
      dp_host_die("%s: a read of %u bytes is rounded up and leaves its buffer of %u bytes", what, rows * row_bytes, near_buffer->bytes);
    const dp_rows tail = {near_side + rows * row_bytes, past, 1, past};
    c.tail = tail;
  }
  dp_flight *f = handle->pending ? flight_of(what, handle, outer) : new_flight(handle, outer);
  if (dp_host.check != DP_CHECK_NONE) {
    check_conflicts(what, f, &c);
    check_own(what, f, &c);
    check_spoilt(what, &c);
  }
  start_copy(f, &c);
  add_to_flight(f, &c);
  handle->pending++;
  dp_host_counters *n = &dp_host.count;
  uint64_t *bytes = outer == DP_L3 ? (direction == DP_IN ? &n->l3_to_l2 : &n->l2_to_l3) : (direction == DP_IN ? &n->l2_to_l1 : &n->l1_to_l2);
  uint64_t *commands = outer == DP_L3 ? (direction == DP_IN ? &n->l3_reads : &n->l3_writes) : (direction == DP_IN ? &n->l2_reads : &n->l2_writes);
  *bytes += (uint64_t)rows * row_bytes;
  *commands += 1;
}

static void await(dp_dma *handle, dp_level outer) {
  const char *what = outer == DP_L3 ? "wait for L3" : "wait for L2";
  if (dp_host.in_fork) dp_host_die("%s: a kernel waits for a transfer", what);
  if (handle->pending == 0) return;
  dp_flight *f = flight_of(what, handle, outer);
  if (dp_host.check == DP_CHECK_LAZY) carry_out(f);
  for (size_t i = 0; i < f->copies; i++) end_copy(what, &f->copy[i]);
#ifdef DP_HOST_TSAN
  __tsan_acquire(&f->sync_done);
#endif
  f->used = 0;
  handle->pending = 0;
  handle->id = 0;
  handle->link = NULL;
}

void dp_dma_l2(dp_dma *handle, void *l1, void *l2, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  issue(handle, DP_L2, (uintptr_t)l1, (uintptr_t)l2, row_bytes, rows, stride, direction);
}
void dp_dma_l3(dp_dma *handle, void *l2, dp_l3 l3, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  issue(handle, DP_L3, (uintptr_t)l2, l3, row_bytes, rows, stride, direction);
}
void dp_dma_l2_wait(dp_dma *handle) { await(handle, DP_L2); }
void dp_dma_l3_wait(dp_dma *handle) { await(handle, DP_L3); }

static void check_l3_access(const char *what, dp_l3 l3, uint32_t bytes) {
  dp_host_start();
  const dp_buffer *buffer = dp_find_buffer(DP_L3, l3, bytes);
  if (!buffer) dp_host_die("%s: %u bytes at %#lx do not lie in one open buffer of L3", what, bytes, (unsigned long)l3);
}

/* The caller's own accesses, not counted as traffic of the network. */
void dp_l3_read(void *data, dp_l3 l3, uint32_t bytes) {
  if (bytes == 0) return;
  check_l3_access("dp_l3_read", l3, bytes);
  memcpy(data, (const void *)l3, bytes);
}

void dp_l3_write(dp_l3 l3, const void *data, uint32_t bytes) {
  if (bytes == 0) return;
  check_l3_access("dp_l3_write", l3, bytes);
  memcpy((void *)l3, data, bytes);
}

void dp_dma_forget(dp_level level, const dp_buffer *buffer) {
  const dp_rows all = {buffer->at, buffer->bytes, 1, buffer->bytes};
  for (size_t f = 0; f < flights; f++)
    for (size_t i = 0; flight[f]->used && i < flight[f]->copies; i++)
      if (rows_meet(&all, &flight[f]->copy[i].to) || rows_meet(&all, &flight[f]->copy[i].from))
        dp_host_die("%s: buffer of %u bytes at %#lx closed while a transfer on it is in flight", dp_level_name[level], buffer->bytes,
                    (unsigned long)buffer->at);
  size_t kept = 0;
  for (size_t i = 0; i < spoilts; i++)
    if (!rows_touch(&all, spoilt[i], spoilt[i] + 1u)) spoilt[kept++] = spoilt[i];
  spoilts = kept;
}

void dp_dma_finish(void) {
  size_t pending = 0;
  for (size_t f = 0; f < flights; f++) pending += flight[f]->used ? flight[f]->copies : 0;
  if (pending) dp_host_die("%zu transfers never waited for", pending);
}
