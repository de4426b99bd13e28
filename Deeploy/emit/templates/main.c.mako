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

static union {
  uint8_t bytes[${largest}];
  uint64_t align;
} data;

#ifdef DP_OBSERVE
#ifdef __cplusplus
extern "C"
#endif
void ${prefix}_observe(void);
#endif

static long rounds_left;

% if fixtures or state.tensors:
/* Fills `data` with a file, with zeros where there is none. */
static int load(const char *file, uint32_t bytes) {
  memset(data.bytes, 0, bytes);
  if (file && dp_load_file_to_l2(data.bytes, file, bytes)) {
    printf("cannot load %s\n", file);
    return 1;
  }
  return 0;
}

% endif
% if state.tensors:
/* State begins every round with its first values. */
static int set_state(void) {
  static const char *const files[] = {${", ".join('"%s"' % f if f else "NULL" for f in state_files)}};
  uint32_t i;
  for (i = 0; i < ${prefix}_STATES; i++)
    if (load(files[i], ${prefix}_state[i].bytes) || ${prefix}_SetState(i, data.bytes, ${prefix}_state[i].bytes)) return 1;
  return 0;
}

% endif
% if written or keep_state:
/* Shows what is in `data` and writes it to a file. */
static int keep(const char *what, uint32_t number, const dp_io *io, const char *file) {
  uint32_t k, sum;
  for (k = 0, sum = 0; k < io->bytes; k++) sum = sum * 31u + data.bytes[k];
  printf("%s %u: %s, %u bytes, sum %08x\n", what, (unsigned)number, io->name, (unsigned)io->bytes, (unsigned)sum);
  return dp_write_file(file, data.bytes, io->bytes);
}

% endif
% if keep_state:
static int get_state(void) {
  uint32_t i;
  char name[32];
  for (i = 0; i < ${prefix}_STATES; i++) {
    if (${prefix}_GetState(i, data.bytes, ${prefix}_state[i].bytes)) return 1;
    snprintf(name, sizeof name, "state_%u.bin", (unsigned)i);
    if (keep("state", i, &${prefix}_state[i], name)) return 1;
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
    if (load(files[i], ${prefix}_inputs${p.suffix}[i].bytes) || ${prefix}_SetInput${p.suffix}(i, data.bytes, ${prefix}_inputs${p.suffix}[i].bytes)) return 1;
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
    const dp_io *const io = &${prefix}_outputs${p.suffix}[kept[i]];
    if (${prefix}_GetOutput${p.suffix}(kept[i], data.bytes, io->bytes)) return 1;
% if single:
    (void)number;
    snprintf(name, sizeof name, "output_%u.bin", (unsigned)kept[i]);
% else:
    snprintf(name, sizeof name, "output_%u_%u.bin", (unsigned)number, (unsigned)kept[i]);
% endif
    if (keep("output", kept[i], io, name)) return 1;
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
