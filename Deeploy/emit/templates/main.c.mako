/* Runs the network on its stored inputs: main [ROUNDS]. Made by Deeploy ${version}. Do not edit.
 *
 * The outputs of the last round are written to output_<k>.bin where the program can write files: on the host in the working folder, on a
 * simulator where that runs. On the host the counters go to stdout. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "Network.h"
% if outputs:
#include "dp_files.h"
% endif
#ifdef DP_HOST
#include "dp_host.h"
#if DP_DMA_MAX_BYTES != ${min(dma.max_bytes for _, dma, _ in engines)}u
#error "transfers are split at another length than the platform's"
#endif
#endif

static union {
  uint8_t bytes[${max([1] + [x.bytes for x in inputs + outputs])}];
  uint64_t align;
} data;

#ifdef DP_OBSERVE
#ifdef __cplusplus
extern "C"
#endif
void ${prefix}_observe(void);
#endif

% if inputs:
static const char *const fixtures[] = {${", ".join('"%s"' % f if f else "NULL" for f in fixtures)}};

static int set_inputs(void) {
  uint32_t i;
  for (i = 0; i < ${prefix}_INPUTS; i++) {
    const uint32_t bytes = ${prefix}_inputs[i].bytes;
    memset(data.bytes, 0, bytes);
    if (fixtures[i] && dp_load_file_to_l2(data.bytes, fixtures[i], bytes)) {
      printf("cannot load %s\n", fixtures[i]);
      return 1;
    }
    if (${prefix}_SetInput(i, data.bytes, bytes)) return 1;
  }
  return 0;
}

% endif
% if outputs:
static int get_outputs(void) {
  uint32_t i, k, sum;
  char name[32];
  for (i = 0; i < ${prefix}_OUTPUTS; i++) {
    const uint32_t bytes = ${prefix}_outputs[i].bytes;
    if (${prefix}_GetOutput(i, data.bytes, bytes)) return 1;
    for (k = 0, sum = 0; k < bytes; k++) sum = sum * 31u + data.bytes[k];
    printf("output %u: %s, %u bytes, sum %08x\n", (unsigned)i, ${prefix}_outputs[i].name, (unsigned)bytes, (unsigned)sum);
    snprintf(name, sizeof name, "output_%u.bin", (unsigned)i);
    if (dp_write_file(name, data.bytes, bytes)) return 1;
  }
  return 0;
}

% endif
int main(int argc, char **argv) {
  long rounds = argc > 1 ? atol(argv[1]) : 1;
  int result;
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
  for (; rounds > 0; rounds--) {
% if inputs:
    if (set_inputs()) return 1;
% endif
    result = ${prefix}_Run();
    if (result) {
      printf("${prefix}_Run: %d\n", result);
      return 1;
    }
  }
% if outputs:
  if (argc < 2 || atol(argv[1]) > 0)
    if (get_outputs()) return 1;
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
