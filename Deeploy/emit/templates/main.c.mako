<%
single = len(calls) == 1
written = any(c.outputs for c in calls)
fixtures = any(c.files for c in calls)
%>\
/* Runs the network on its stored inputs: main [ROUNDS]. Made by Deeploy ${version}. Do not edit.
 *
% if single:
 * The outputs of the last round are written to output_<k>.bin where the program can write files: on the host in the working folder, on a
 * simulator where that runs. On the host the counters go to stdout. */
% else:
 * A round is ${len(calls)} calls. The outputs of the last round's calls are written to output_<call>_<k>.bin where the program can write files: on
 * the host in the working folder, on a simulator where that runs. On the host the counters go to stdout. */
% endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "Network.h"
% if written or keep_state:
#include "dp_files.h"
% endif
#ifdef DP_HOST
#include "dp_host.h"
#if DP_DMA_MAX_BYTES != ${min(dma.max_bytes for _, dma, _ in engines)}u
#error "transfers are split at another length than the platform's"
#endif
#endif

% if fixtures or state.tensors or written or keep_state:
#define PART 4096u /* tensors pass through in parts, because the memory is the network's */

static union {
  uint8_t bytes[PART];
  uint64_t align;
} part;

static uint32_t part_at(uint32_t at, uint32_t bytes) { return bytes - at < PART ? bytes - at : PART; }

% endif
#ifdef DP_OBSERVE
#ifdef __cplusplus
extern "C"
#endif
void ${prefix}_observe(void);
#endif

static long rounds_left;

% if fixtures or state.tensors:
/* Sets a tensor to what is in a file, to zeros where there is none. */
static int load(int (*set)(uint32_t, uint32_t, const void *, uint32_t), uint32_t index, uint32_t bytes, const char *file) {
  uint32_t at = 0, now;
  memset(part.bytes, 0, sizeof part.bytes);
  do {
    now = part_at(at, bytes);
    if (file && dp_load_part_to_l2(part.bytes, file, bytes, at, now)) {
      printf("cannot load %s\n", file);
      return 1;
    }
    if (set(index, at, part.bytes, now)) return 1;
    at += now;
  } while (at < bytes);
  return 0;
}

% endif
% if state.tensors:
/* State begins every round with its first values. */
static int set_state(void) {
  static const char *const files[] = {${", ".join('"%s"' % f if f else "NULL" for f in state_files)}};
  uint32_t i;
  for (i = 0; i < ${prefix}_STATES; i++)
    if (load(${prefix}_SetStatePart, i, ${prefix}_state[i].bytes, files[i])) return 1;
  return 0;
}

% endif
% if written or keep_state:
/* Writes a tensor to a file and shows a sum of its bytes. */
static int keep(int (*get)(uint32_t, uint32_t, void *, uint32_t), uint32_t index, const dp_io *io, const char *what, const char *file) {
  uint32_t at = 0, sum = 0, now, k;
  do {
    now = part_at(at, io->bytes);
    if (get(index, at, part.bytes, now) || dp_write_part(file, at, part.bytes, now)) return 1;
    for (k = 0; k < now; k++) sum = sum * 31u + part.bytes[k];
    at += now;
  } while (at < io->bytes);
  printf("%s %u: %s, %u bytes, sum %08x\n", what, (unsigned)index, io->name, (unsigned)io->bytes, (unsigned)sum);
  return 0;
}

% endif
% if keep_state:
static int get_state(void) {
  uint32_t i;
  char name[32];
  for (i = 0; i < ${prefix}_STATES; i++) {
    snprintf(name, sizeof name, "state_%u.bin", (unsigned)i);
    if (keep(${prefix}_GetStatePart, i, &${prefix}_state[i], "state", name)) return 1;
  }
  return 0;
}

% endif
% for p in programs:
<%
mine = [c for c in calls if c.program == p.index]
inputs, outputs = p.inputs.tensors, any(c.outputs for c in mine)
%>\
% if mine:
/* ${"One run" if len(programs) == 1 else "One run of " + p.name}: files of the inputs, which outputs to keep. */
static int call${p.suffix}(uint32_t number, const char *const *files, const uint32_t *kept, uint32_t count) {
  int result;
% if inputs or outputs:
  uint32_t i;
% endif
% if outputs:
  char name[48];
% endif
% if inputs:
  for (i = 0; i < ${prefix}_INPUTS${p.suffix}; i++)
    if (load(${prefix}_SetInputPart${p.suffix}, i, ${prefix}_inputs${p.suffix}[i].bytes, files[i])) return 1;
% else:
  (void)files;
% endif
  result = ${prefix}_Run${p.suffix}();
  if (result) {
    printf("${prefix}_Run${p.suffix}: %d\n", result);
    return 1;
  }
% if outputs:
  for (i = 0; i < count && rounds_left == 1; i++) {
% if single:
    (void)number;
    snprintf(name, sizeof name, "output_%u.bin", (unsigned)kept[i]);
% else:
    snprintf(name, sizeof name, "output_%u_%u.bin", (unsigned)number, (unsigned)kept[i]);
% endif
    if (keep(${prefix}_GetOutputPart${p.suffix}, kept[i], &${prefix}_outputs${p.suffix}[kept[i]], "output", name)) return 1;
  }
% else:
  (void)number, (void)kept, (void)count;
% endif
  return 0;
}

% endif
% endfor
static int run_round(void) {
% if state.tensors:
  if (set_state()) return 1;
% endif
% for n, c in enumerate(calls):
  {
% if c.files:
    static const char *const files[] = {${", ".join('"%s"' % f if f else "NULL" for f in c.files)}};
% endif
% if c.outputs:
    static const uint32_t kept[] = {${", ".join("%du" % k for k in c.outputs)}};
% endif
    if (call${programs[c.program].suffix}(${n}u, ${"files" if c.files else "NULL"}, ${"kept" if c.outputs else "NULL"}, ${len(c.outputs)}u)) return 1;
  }
% endfor
  return 0;
}

int main(int argc, char **argv) {
  int result;
  rounds_left = argc > 1 ? atol(argv[1]) : 1;
#ifdef DP_HOST
  setenv("DP_HOST_FILES", "hex", 0);
  dp_host_configure(${limits["L1"]}u, ${limits["L2"]}u, ${limits["L3"]}u, ${cores}u);
% for outer, dma, rounding in engines:
  dp_host_configure_dma(${outer}, ${dma.max_bytes}u, ${dma.alignment}u, ${rounding}u);
% endfor
#endif
  result = ${prefix}_Init();
  if (result) {
    printf("${prefix}_Init: %d\n", result);
    return 1;
  }
#ifdef DP_OBSERVE
  ${prefix}_observe();
#endif
#ifdef DP_HOST
  dp_host_reset_traffic();
#endif
  for (; rounds_left > 0; rounds_left--)
    if (run_round()) return 1;
% if keep_state:
  if (get_state()) return 1;
% endif
#ifdef DP_HOST
  dp_host_report(stdout);
#endif
  ${prefix}_Free();
#ifdef DP_HOST
  dp_host_finish();
#endif
  return 0;
}
