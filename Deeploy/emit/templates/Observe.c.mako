/* Watches the network step by step, for tests on the host; built with DP_OBSERVE. Made by Deeploy ${version}. Do not edit.
 *
 * If the environment has DP_TRACE=FILE, every variable that a step reads is appended to that file before it, and every variable that it
 * writes after it: 8 bytes "DPTRACE1", then records of five little-endian uint32 (round, step, phase, tensor, bytes) and the dense row-major
 * data. phase: 0 before the step, 1 after it; tensor: index in the manifest's list of tensors. With DP_RANDOM=SEED in the environment
 * the variables that a graph node reads are filled with random values of their proven range before they are recorded. */
#include "Network.h"

#ifdef DP_OBSERVE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dp_host.h"

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

static FILE *trace;
static uint32_t round_number;
static uint64_t random_state;
static union {
  uint8_t bytes[${max([8] + observed_bytes)}];
  uint64_t align;
} data;

#ifdef __cplusplus
extern "C" {
#endif
uintptr_t ${prefix}_observed_address(uint32_t index);
void ${prefix}_observe(void);
#ifdef __cplusplus
}
#endif

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

static void fill(const observed *t, uint32_t index) {
  uint32_t at;
  for (at = 0; at < t->io.bytes; at += t->io.elem) {
    if (t->io.dtype == DP_FLOAT32) {
      const float value = (float)(next_random() >> 40) / 4194304.0f - 2.0f;
      memcpy(data.bytes + at, &value, sizeof value);
    } else {
      const int64_t value = random_integer(t->lo, t->hi);
      memcpy(data.bytes + at, &value, t->io.elem);
    }
  }
  dp_io_set(&t->io, ${prefix}_observed_address(index), data.bytes);
}

static void record(const observed *t, uint32_t index, uint32_t step, uint32_t phase) {
  const uint32_t head[5] = {round_number, step, phase, t->tensor, t->io.bytes};
  dp_io_get(&t->io, ${prefix}_observed_address(index), data.bytes);
  if (fwrite(head, sizeof head, 1, trace) != 1 || fwrite(data.bytes, 1, t->io.bytes, trace) != t->io.bytes) {
    fputs("cannot write the trace\n", stderr);
    exit(1);
  }
}

static void before(uint32_t step) {
  uint32_t i;
  if (step == 0) round_number++;
  for (i = begins[3 * step]; random_state && i < begins[3 * step + 1]; i++) fill(&tensors[list[i]], list[i]);
  for (i = begins[3 * step]; i < begins[3 * step + 2]; i++) record(&tensors[list[i]], list[i], step, 0);
}

static void after(uint32_t step) {
  uint32_t i;
  for (i = begins[3 * step + 2]; i < begins[3 * step + 3]; i++) record(&tensors[list[i]], list[i], step, 1);
  if (step + 1 == ${prefix}_STEPS) fflush(trace);
}

void ${prefix}_observe(void) {
  const char *name = getenv("DP_TRACE"), *seed = getenv("DP_RANDOM");
  if (!name) return;
  trace = fopen(name, "wb");
  if (!trace || fwrite("DPTRACE1", 8, 1, trace) != 1) {
    fputs("cannot write the trace\n", stderr);
    exit(1);
  }
  random_state = seed ? 0x9E3779B97F4A7C15u * (2u * strtoul(seed, NULL, 10) + 1u) : 0;
  dp_host_on_step(before, after);
}
#endif
