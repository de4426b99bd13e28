<%namespace name="t" file="step.c.mako"/>\
<%def name="opened(b)">\
<% first = "t_" + b.tensors[0].name; level = "l2" if b.level.name == "L2" else "l3" %>\
  ${first} = (uintptr_t)dp_open_${level}(net.state.${level}, ${b.offset}u, ${b.size}u);
% for x in b.tensors[1:]:
  t_${x.name} = ${first};
% endfor
</%def>\
<%def name="closed(b)">\
  dp_close_${"l2((void *)" if b.level.name == "L2" else "l3("}t_${b.tensors[0].name}, ${b.size}u);
</%def>\
<%def name="table(name, ios)">\
const dp_io ${prefix}_${name}[] = {
% for i in ios:
  {${i}},
% endfor
% if not ios:
  {NULL, 0, 0, 0, 0, 0, 0, {0}, {0}},
% endif
};
</%def>\
<%def name="addresses(name, tensors)">\
% if tensors:
static uintptr_t ${name}(uint32_t index) {
  switch (index) {
% for i, x in enumerate(tensors):
    case ${i}: return ${"t_" + x.name if x.storage.size else "0"};
% endfor
    default: return 0;
  }
}
% endif
</%def>\
<%def name="setter(function, count, table, address, tensors, refused, marks)">\
int ${prefix}_${function}(uint32_t index, const void *data, uint32_t bytes) {
  if (${refused}) return ${prefix}_NOT_READY;
% if tensors:
  if (index >= ${prefix}_${count} || bytes != ${prefix}_${table}[index].bytes) return ${prefix}_BAD_ARGUMENT;
% if marks:
  begin_round();
% endif
  if (${address}(index)) dp_io_set(&${prefix}_${table}[index], ${address}(index), data);
% if marks:
  net.set[index] = 1;
% endif
  return ${prefix}_OK;
% else:
  (void)index, (void)data, (void)bytes;
  return ${prefix}_BAD_ARGUMENT;
% endif
}
</%def>\
<%def name="getter(function, count, table, address, tensors, refused)">\
int ${prefix}_${function}(uint32_t index, void *data, uint32_t bytes) {
  if (${refused}) return ${prefix}_NOT_READY;
% if tensors:
  if (index >= ${prefix}_${count} || bytes != ${prefix}_${table}[index].bytes) return ${prefix}_BAD_ARGUMENT;
  if (${address}(index)) dp_io_get(&${prefix}_${table}[index], ${address}(index), data);
  return ${prefix}_OK;
% else:
  (void)index, (void)data, (void)bytes;
  return ${prefix}_BAD_ARGUMENT;
% endif
}
</%def>\
/* ${title}: made by Deeploy ${version} for ${platform}. Do not edit. */
#include "Network.h"

#include <math.h>
#include <string.h>

#include "dp_step.h"
% for header in headers:
#include "${header}"
% endfor

/* ---- constants at home in L2: one array per storage ------------------------------------------------------------------------------ */

% for o in owned:
% if o.level.name == "L2" and o.constant:
<% ctype, count, lines = array(o.storage.content) %>\
static const DP_ALIGN(${o.storage.alignment}) ${ctype} ${o.symbol}[${count}] = {
  ${lines}
};
% endif
% endfor

/* ---- state at home in L2: loaded by Init ------------------------------------------------------------------------------------------ */

% for o in owned:
% if o.level.name == "L2" and not o.constant:
static DP_ALIGN(${o.storage.alignment}) uint8_t ${o.symbol}[${o.storage.size}];
% endif
% endfor

/* ---- one address per tensor: the beginning of its storage, in L2 or in L3 ------------------------------------------------------------ */

% for x in pointers:
static uintptr_t t_${x.name};
% endfor

static struct {
  dp_state state;
  uint8_t ready; /* Init has succeeded */
  uint8_t open;  /* the inputs of the next run are open */
  uint8_t done;  /* the outputs of the last run are open */
  uint8_t set[${max(1, len(inputs))}]; /* which inputs have a value */
} net;

/* ---- the steps -------------------------------------------------------------------------------------------------------------------- */

% for s in steps:
/* step ${s.index}: ${s.comment} */
${t.tables(s)}
% endfor
static void RunNetwork(void *unused) {
  (void)unused;
% for s in steps:
  /* step ${s.index}: ${s.comment} */
% for b in opens[s.index]:
${opened(b)}\
% endfor
  dp_step_begin(${s.index}u);
  dp_step_run(&${s.name}, &net.state);
  dp_step_end(${s.index}u);
% for b in closes[s.index]:
${closed(b)}\
% endfor
% endfor
% if not steps:
% for b in opens[0]:
${opened(b)}\
% endfor
% for b in closes[0]:
${closed(b)}\
% endfor
% endif
}

/* ---- the interface ---------------------------------------------------------------------------------------------------------------- */

${table("inputs", input_ios)}
${table("outputs", output_ios)}
${table("state", state_ios)}
${addresses("input_address", inputs)}
${addresses("output_address", outputs)}
${addresses("state_address", state)}
/* Ends the life of the last run's outputs and begins that of the next run's inputs. */
static void begin_round(void) {
  if (net.open) return;
% if any(b.is_output for b in buffers):
  if (net.done) {
% for b in buffers:
% if b.is_output:
  ${closed(b)}\
% endif
% endfor
  }
% endif
% for b in buffers:
% if b.is_input and not b.kept:
${opened(b)}\
% endif
% endfor
  net.done = 0;
  net.open = 1;
}

static int init_network(void) {
% if arenas["L2"]:
  net.state.l2 = dp_arena_l2(${arenas["L2"]}u);
  if (!net.state.l2) return ${prefix}_NO_MEMORY;
% endif
% if arenas["L3"]:
  net.state.l3 = dp_arena_l3(${arenas["L3"]}u);
  if (!net.state.l3) return ${prefix}_NO_MEMORY;
% endif
% for o in owned:
<% first = "t_" + o.tensors[0].name %>\
% if o.level.name == "L3":
  ${first} = cl_ram_malloc(${o.storage.size}u);
  if (!${first}) return ${prefix}_NO_MEMORY;
  if (load_file_to_ram(${first}, "${o.file}", ${o.storage.size}u)) return ${prefix}_NO_FILE;
% for x in o.tensors[1:]:
  t_${x.name} = ${first};
% endfor
% else:
% if o.file:
  if (dp_load_file_to_l2(${o.symbol}, "${o.file}", ${o.storage.size}u)) return ${prefix}_NO_FILE;
% endif
  ${first} = (uintptr_t)${o.symbol};
% for x in o.tensors[1:]:
  t_${x.name} = ${first};
% endfor
% endif
% endfor
% for b in buffers:
% if b.kept:
${opened(b)}\
% endif
% endfor
  net.ready = 1;
  return ${prefix}_OK;
}

int ${prefix}_Init(void) {
  int result;
  ${prefix}_Free();
  result = init_network();
  if (result) ${prefix}_Free();
  return result;
}

void ${prefix}_Free(void) {
  if (net.ready) {
% if any(b.is_output for b in buffers):
    if (net.done) {
% for b in buffers:
% if b.is_output:
    ${closed(b)}\
% endif
% endfor
    }
% endif
% if any(b.is_input and not b.kept for b in buffers):
    if (net.open) {
% for b in buffers:
% if b.is_input and not b.kept:
    ${closed(b)}\
% endif
% endfor
    }
% endif
% for b in buffers:
% if b.kept:
  ${closed(b)}\
% endif
% endfor
  }
% for o in reversed(owned):
% if o.level.name == "L3":
  if (t_${o.tensors[0].name}) cl_ram_free(t_${o.tensors[0].name}, ${o.storage.size}u);
  t_${o.tensors[0].name} = 0;
% endif
% endfor
% if arenas["L3"]:
  if (net.state.l3) dp_arena_l3_free(net.state.l3, ${arenas["L3"]}u);
% endif
% if arenas["L2"]:
  if (net.state.l2) dp_arena_l2_free(net.state.l2, ${arenas["L2"]}u);
% endif
  memset(&net, 0, sizeof net);
}

${setter("SetInput", "INPUTS", "inputs", "input_address", inputs, "!net.ready", True)}
${getter("GetOutput", "OUTPUTS", "outputs", "output_address", outputs, "!net.ready || !net.done")}
${setter("SetState", "STATES", "state", "state_address", state, "!net.ready", False)}
${getter("GetState", "STATES", "state", "state_address", state, "!net.ready")}
int ${prefix}_Run(void) {
  if (!net.ready) return ${prefix}_NOT_READY;
% for i, x in enumerate(inputs):
% if x.storage.size:
  if (!net.set[${i}]) return ${prefix}_NOT_READY; /* ${comment(x.source)} */
% endif
% endfor
% if arenas["L1"]:
  net.state.l1 = dp_arena_l1(${arenas["L1"]}u);
  if (!net.state.l1) return ${prefix}_NO_MEMORY;
% endif
  begin_round();
  dp_cluster_call(RunNetwork, NULL);
% if arenas["L1"]:
  dp_arena_l1_free(net.state.l1, ${arenas["L1"]}u);
  net.state.l1 = NULL;
% endif
% for i in consumed:
  net.set[${i}] = 0;
% endfor
  net.open = 0;
  net.done = 1;
  return ${prefix}_OK;
}

#ifdef DP_OBSERVE
uintptr_t ${prefix}_observed_address(uint32_t index);
uintptr_t ${prefix}_observed_address(uint32_t index) {
  switch (index) {
% for i, x in observed:
    case ${i}: return t_${x.name};
% endfor
    default: return 0;
  }
}
#endif
