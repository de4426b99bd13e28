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
<%def name="table(name, interface)">\
const dp_io ${prefix}_${name}[] = {
% for i in interface.ios:
  {${i}},
% endfor
% if not interface.ios:
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
<%def name="part_checks(count, table, tensors, needed, filled)">\
  if (${" || ".join("!" + flag for flag in needed)}) return ${prefix}_NOT_READY;
% if tensors:
  if (index >= ${prefix}_${count} || !dp_io_within(&${prefix}_${table}[index], offset, bytes)) return ${prefix}_BAD_ARGUMENT;
% if filled:
  if (offset != 0 && offset != ${filled}[index]) return ${prefix}_BAD_ARGUMENT;
% endif
% else:
  (void)index, (void)offset, (void)data, (void)bytes;
  return ${prefix}_BAD_ARGUMENT;
% endif
</%def>\
<%def name="whole(part, count, table, tensors, needed)">\
% if tensors:
  if (${" && ".join(needed)} && index < ${prefix}_${count} && bytes != ${prefix}_${table}[index].bytes) return ${prefix}_BAD_ARGUMENT;
% endif
  return ${prefix}_${part}(index, 0, data, bytes);
</%def>\
<%def name="setter(function, suffix, count, table, address, tensors, needed, before, filled)">\
int ${prefix}_${function}Part${suffix}(uint32_t index, uint32_t offset, const void *data, uint32_t bytes) {
${part_checks(count + suffix, table + suffix, tensors, needed, filled)}\
% if tensors:
% if before:
  ${before}
% endif
  dp_io_set(&${prefix}_${table}${suffix}[index], ${address}${suffix}(index), offset, data, bytes);
  ${filled}[index] = offset + bytes;
  return ${prefix}_OK;
% endif
}

int ${prefix}_${function}${suffix}(uint32_t index, const void *data, uint32_t bytes) {
${whole(function + "Part" + suffix, count + suffix, table + suffix, tensors, needed)}\
}
</%def>\
<%def name="getter(function, suffix, count, table, address, tensors, needed)">\
int ${prefix}_${function}Part${suffix}(uint32_t index, uint32_t offset, void *data, uint32_t bytes) {
${part_checks(count + suffix, table + suffix, tensors, needed, "")}\
% if tensors:
  dp_io_get(&${prefix}_${table}${suffix}[index], ${address}${suffix}(index), offset, data, bytes);
  return ${prefix}_OK;
% endif
}

int ${prefix}_${function}${suffix}(uint32_t index, void *data, uint32_t bytes) {
${whole(function + "Part" + suffix, count + suffix, table + suffix, tensors, needed)}\
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
% if state.tensors:
  uint32_t filled[${len(state.tensors)}]; /* bytes of each state that the caller has given */
% endif
} net;

/* Per program: open: the inputs of the next run are open; done: the outputs of the last run are open; filled: bytes of each input that the
 * caller has given. */
% for p in programs:
static struct {
  uint8_t open, done;
  uint32_t filled[${max(1, len(p.inputs.tensors))}];
} io${p.suffix};
% endfor

% for p in programs:
/* ---- the steps${"" if len(programs) == 1 else " of " + p.name} ${"-" * 90} */

% for s in p.steps:
/* step ${s.index}: ${s.comment} */
${t.tables(s)}
% endfor
static void Run${p.title}(void *unused) {
  (void)unused;
% for i, s in enumerate(p.steps):
  /* step ${s.index}: ${s.comment} */
% for b in p.opens[i]:
${opened(b)}\
% endfor
  dp_step_begin(${s.index}u);
  dp_step_run(&${s.name}, &net.state);
  dp_step_end(${s.index}u);
% for b in p.closes[i]:
${closed(b)}\
% endfor
% endfor
% if not p.steps:
% for b in p.opens[0]:
${opened(b)}\
% endfor
% for b in p.closes[0]:
${closed(b)}\
% endfor
% endif
}

% endfor
/* ---- the interface ---------------------------------------------------------------------------------------------------------------- */

% for p in programs:
${table("inputs" + p.suffix, p.inputs)}
${table("outputs" + p.suffix, p.outputs)}
% endfor
${table("state", state)}
% for p in programs:
${addresses("input_address" + p.suffix, p.inputs.tensors)}
${addresses("output_address" + p.suffix, p.outputs.tensors)}
% endfor
${addresses("state_address", state.tensors)}
% for p in programs:
/* Ends the life of the last run's outputs, and of inputs that were set for a run that has not come. */
static void end_round${p.suffix}(void) {
% if any(b.is_output for b in p.buffers):
  if (io${p.suffix}.done) {
% for b in p.buffers:
% if b.is_output:
  ${closed(b)}\
% endif
% endfor
  }
% endif
% if any(b.is_input and not b.kept for b in p.buffers):
  if (io${p.suffix}.open) {
% for b in p.buffers:
% if b.is_input and not b.kept:
  ${closed(b)}\
% endif
% endfor
  }
% endif
  io${p.suffix}.done = io${p.suffix}.open = 0;
}

% endfor
% for p in programs:
/* Ends the life of the last run's outputs and begins that of the next run's inputs.${"" if len(programs) == 1 else " The programs use the same memory."} */
static void begin_round${p.suffix}(void) {
  if (io${p.suffix}.open) return;
% for q in programs:
% if q is not p and q.inputs.tensors:
  memset(io${q.suffix}.filled, 0, sizeof io${q.suffix}.filled);
% endif
  end_round${q.suffix}();
% endfor
% for b in p.buffers:
% if b.is_input and not b.kept:
${opened(b)}\
% endif
% endfor
  io${p.suffix}.open = 1;
}

% endfor
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
% for b in kept:
${opened(b)}\
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
% for p in programs:
    end_round${p.suffix}();
% endfor
% for b in kept:
  ${closed(b)}\
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
% for p in programs:
  memset(&io${p.suffix}, 0, sizeof io${p.suffix});
% endfor
}

% for p in programs:
${setter("SetInput", p.suffix, "INPUTS", "inputs", "input_address", p.inputs.tensors, ["net.ready"], "begin_round" + p.suffix + "();", "io" + p.suffix + ".filled")}
${getter("GetOutput", p.suffix, "OUTPUTS", "outputs", "output_address", p.outputs.tensors, ["net.ready", "io" + p.suffix + ".done"])}
% endfor
${setter("SetState", "", "STATES", "state", "state_address", state.tensors, ["net.ready"], "", "net.filled")}
${getter("GetState", "", "STATES", "state", "state_address", state.tensors, ["net.ready"])}
% for p in programs:
int ${prefix}_Run${p.suffix}(void) {
  if (!net.ready) return ${prefix}_NOT_READY;
% for i, x in enumerate(p.inputs.tensors):
% if x.storage.size:
  if (io${p.suffix}.filled[${i}] != ${x.bytes}u) return ${prefix}_NOT_READY; /* ${comment(x.source)} */
% endif
% endfor
% for i in p.state:
% if i in given_state:
  if (net.filled[${i}] != ${state.tensors[i].bytes}u) return ${prefix}_NOT_READY; /* ${comment(state.tensors[i].source)} */
% endif
% endfor
% if arenas["L1"]:
  net.state.l1 = dp_arena_l1(${arenas["L1"]}u);
  if (!net.state.l1) return ${prefix}_NO_MEMORY;
% endif
  begin_round${p.suffix}();
  dp_cluster_call(Run${p.title}, NULL);
% if arenas["L1"]:
  dp_arena_l1_free(net.state.l1, ${arenas["L1"]}u);
  net.state.l1 = NULL;
% endif
% for i in p.consumed:
  io${p.suffix}.filled[${i}] = 0;
% endfor
  io${p.suffix}.open = 0;
  io${p.suffix}.done = 1;
  return ${prefix}_OK;
}

% endfor
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
