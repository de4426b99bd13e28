/* Watches the network step by step, for tests on simulators; built with DP_OBSERVE. Made by Deeploy ${version}. Do not edit.
 *
 * Every variable that a step reads is appended to the trace before it, and every variable that it writes after it: 8 bytes "DPTRACE1",
 * then records of five little-endian uint32 (round, step, phase, tensor, bytes) and the dense row-major data. phase: 0 before the step,
 * 1 after it; tensor: index in the manifest's list of tensors. With a seed the variables that a graph node reads are filled with random
 * values of their proven range before they are recorded.
 *
 * On the host the environment names the file (DP_TRACE=FILE; without it nothing is watched) and the seed (DP_RANDOM=SEED). On the chip
 * the file is trace.bin, -DDP_RANDOM=SEED gives the seed, and the linker brings the marks of the steps here (--wrap=dp_step_begin,
 * --wrap=dp_step_end). */
#include "Network.h"

#ifdef DP_OBSERVE
#include <string.h>

#ifdef DP_HOST
#include <stdio.h>
#include <stdlib.h>

#include "dp_host.h"
#else
#include "dp_pulp.h"
#endif

#define PART 1024u /* bytes that are looked at at once: L2 has little room beside a network */

typedef struct observed {
  dp_io io;
  uint32_t tensor; /* in the manifest */
  int64_t lo, hi;
} observed;

static const observed tensors[] = {
% for io, index, lo, hi in observed_ios:
  {{${io}}, ${index}, ${lo}, ${hi}},
% endfor
% if not observed_ios:
  {{NULL, 0, 0, 0, 0, 0, 0, {0}, {0}}, 0, 0, 0},
% endif
};
/* Per step three slices of `list`: what it reads and no earlier step of its node has touched, what else it reads, what it writes. */
static const uint32_t list[] = {${", ".join(map(str, observed_list)) or 0}};
static const uint32_t begins[] = {${", ".join(map(str, observed_begins)) or 0}};
/* The first and the last step of each program. */
static const uint32_t firsts[] = {${", ".join(str(p.base) for p in programs)}}, lasts[] = {${", ".join(str(p.base + len(p.steps) - 1) if p.steps else "UINT32_MAX" for p in programs)}};

static uint32_t round_number;
static uint64_t random_state;
static union {
  uint8_t bytes[PART];
  uint64_t align;
} part;
static struct {
  uint8_t bytes[PART];
  uint32_t used;
} gathered;

#ifdef __cplusplus
extern "C" {
#endif
uintptr_t ${prefix}_observed_address(uint32_t index);
void ${prefix}_observe(void);
#ifdef __cplusplus
}
#endif

/* ---- the file -------------------------------------------------------------------------------------------------------------------- */

#ifdef DP_HOST
static FILE *trace;

static void failed(void) {
  fputs("cannot write the trace\n", stderr);
  exit(1);
}

static int open_trace(void) {
  const char *name = getenv("DP_TRACE"), *seed = getenv("DP_RANDOM");
  if (!name) return 0;
  trace = fopen(name, "wb");
  if (!trace) failed();
  random_state = seed ? strtoul(seed, NULL, 10) + 1u : 0;
  return 1;
}

static void write_trace(const void *data, uint32_t bytes) {
  if (fwrite(data, 1, bytes, trace) != bytes) failed();
}

static void end_round(void) { fflush(trace); }

#else
static int32_t trace; /* nobody closes it: the simulator keeps nothing back */

static void failed(void) { dp_pulp_die(1, "cannot write the trace in round ", round_number); }

static int open_trace(void) {
  trace = dp_pulp_file_open("trace.bin", 0);
  if (trace < 0) failed();
#ifdef DP_RANDOM
  random_state = (uint64_t)DP_RANDOM + 1u;
#endif
  return 1;
}

static void write_trace(const void *data, uint32_t bytes) {
  if (dp_pulp_file_write(trace, data, bytes)) failed();
}

static void end_round(void) {}
#endif

static void flush(void) {
  if (gathered.used) write_trace(gathered.bytes, gathered.used);
  gathered.used = 0;
}

/* Few bytes are gathered, so that scattered elements do not become a call each. */
static void put(const void *data, uint32_t bytes) {
  if (bytes > PART - gathered.used || bytes >= 64u) flush();
  if (bytes >= 64u) {
    write_trace(data, bytes);
  } else {
    memcpy(gathered.bytes + gathered.used, data, bytes);
    gathered.used += bytes;
  }
}

/* ---- values ---------------------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

/* One value in `count` of each end of the range, so that the ends are seen. */
static int64_t random_integer(int64_t lo, int64_t hi) {
  const uint64_t number = next_random() >> 3, choice = next_random() >> 40, span = (uint64_t)hi - (uint64_t)lo;
  uint64_t value;
  if (choice % 32u == 0) return choice & 32u ? lo : hi;
  value = (uint64_t)lo + (span >= UINT64_MAX >> 3 ? (number << 3) % (span == UINT64_MAX ? span : span + 1u) : number % (span + 1u));
  return (int64_t)value;
}

static void draw(const observed *t, uint32_t bytes) {
  uint32_t at;
  for (at = 0; at < bytes; at += t->io.elem) {
    if (t->io.dtype == DP_FLOAT32) {
      const float value = (float)(uint32_t)(next_random() >> 40) / 4194304.0f - 2.0f;
      memcpy(part.bytes + at, &value, sizeof value);
    } else {
      const int64_t value = random_integer(t->lo, t->hi);
      memcpy(part.bytes + at, &value, t->io.elem);
    }
  }
}

static void fill(void *user, uintptr_t place, uint32_t bytes) {
  const observed *t = (const observed *)user;
  uint32_t at, now;
  for (at = 0; at < bytes; at += now) {
    now = bytes - at < PART ? bytes - at : PART;
    draw(t, now);
    if (t->io.level == 3)
      dp_l3_write((dp_l3)(place + at), part.bytes, now);
    else
      memcpy((void *)(place + at), part.bytes, now);
  }
}

static void read_out(void *user, uintptr_t place, uint32_t bytes) {
  const observed *t = (const observed *)user;
  uint32_t at, now;
  if (t->io.level != 3) put((const void *)place, bytes);
  for (at = 0; t->io.level == 3 && at < bytes; at += now) {
    now = bytes - at < PART ? bytes - at : PART;
    dp_l3_read(part.bytes, (dp_l3)(place + at), now);
    put(part.bytes, now);
  }
}

static void each(uint32_t index, dp_io_visit visit) {
  const dp_io *const io = &tensors[index].io;
  dp_io_each(io, ${prefix}_observed_address(index), 0, io->bytes, visit, (void *)(uintptr_t)&tensors[index]);
}

static void record(uint32_t index, uint32_t step, uint32_t phase) {
  const uint32_t head[5] = {round_number, step, phase, tensors[index].tensor, tensors[index].io.bytes};
  put(head, sizeof head);
  each(index, read_out);
}

static int is_among(uint32_t step, const uint32_t *steps) {
  uint32_t i;
  for (i = 0; i < ${len(programs)}u; i++)
    if (steps[i] == step) return 1;
  return 0;
}

static void before(uint32_t step) {
  uint32_t i;
  if (is_among(step, firsts)) round_number++;
  for (i = begins[3 * step]; random_state && i < begins[3 * step + 1]; i++) each(list[i], fill);
  for (i = begins[3 * step]; i < begins[3 * step + 2]; i++) record(list[i], step, 0);
}

static void after(uint32_t step) {
  uint32_t i;
  for (i = begins[3 * step + 2]; i < begins[3 * step + 3]; i++) record(list[i], step, 1);
  flush();
  if (is_among(step, lasts)) end_round();
}

#ifndef DP_HOST
void __real_dp_step_begin(uint32_t step);
void __real_dp_step_end(uint32_t step);
void __wrap_dp_step_begin(uint32_t step);
void __wrap_dp_step_end(uint32_t step);

void __wrap_dp_step_begin(uint32_t step) {
  before(step);
  __real_dp_step_begin(step);
}

void __wrap_dp_step_end(uint32_t step) {
  __real_dp_step_end(step);
  after(step);
}
#endif

void ${prefix}_observe(void) {
  if (!open_trace()) return;
  write_trace("DPTRACE1", 8);
  random_state = random_state ? 0x9E3779B97F4A7C15u * (2u * (random_state - 1u) + 1u) : 0;
#ifdef DP_HOST
  dp_host_on_step(before, after);
#endif
}
#endif
