/* ${title}: made by Deeploy ${version} for ${platform}. Do not edit.
 *
<% runs = ", ".join(prefix + "_Run" + p.suffix for p in programs) %>\
% if len(programs) == 1:
 * ${prefix}_Init, then per round: ${prefix}_SetInput for every input, ${prefix}_Run, ${prefix}_GetOutput; at the end ${prefix}_Free.
 * A run uses up the inputs whose memory it needs for other data: ${prefix}_Run returns ${prefix}_NOT_READY if one has to be set again.
 * Outputs can be read until the next ${prefix}_SetInput, ${prefix}_Run or ${prefix}_Free.
% else:
 * ${prefix}_Init, then the programs in any order, each with its inputs, its run and its outputs; at the end ${prefix}_Free.
 * Runs: ${runs}.
 * The programs use the same memory: to set an input of one, or to run it, ends the life of the inputs and outputs of the others.
% endif
% if state.tensors:
 * State is kept from run to run, and changed by the runs; ${prefix}_SetState and ${prefix}_GetState write and read it at any time.
% endif
% if given_state:
 * State that has no initial value must be set once after ${prefix}_Init, all of it, before a program that uses it runs.
% endif
% if any(p.outputs.tensors[i].storage in [t.storage for t in state.tensors] for p in programs for i in range(len(p.outputs.tensors))):
 * An output that is updated state is that state: no copy is made.
% endif
 */
#ifndef ${prefix}_NETWORK_H
#define ${prefix}_NETWORK_H
#include "dp_io.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  ${prefix}_OK = 0,
  ${prefix}_NO_MEMORY = 1,
  ${prefix}_NO_FILE = 2,
  ${prefix}_BAD_ARGUMENT = 3,
  ${prefix}_NOT_READY = 4
};

% for p in programs:
#define ${prefix}_INPUTS${p.suffix} ${len(p.inputs.tensors)}u
#define ${prefix}_OUTPUTS${p.suffix} ${len(p.outputs.tensors)}u
% endfor
#define ${prefix}_STATES ${len(state.tensors)}u
#define ${prefix}_STEPS ${len(steps)}u

% for p in programs:
% for what, tensors in (("input", p.inputs.tensors), ("output", p.outputs.tensors)):
% for i, x in enumerate(tensors):
/* ${what} ${i}${"" if len(programs) == 1 else " of " + p.name}: ${comment(x.source)}, ${x.dtype} ${list(x.shape)}, ${x.bytes} bytes */
% endfor
% endfor
% endfor
% for i, x in enumerate(state.tensors):
/* state ${i}: ${comment(x.source)}, ${x.dtype} ${list(x.shape)}, ${x.bytes} bytes${", given by the caller" if i in given_state else ""} */
% endfor
% for p in programs:
extern const dp_io ${prefix}_inputs${p.suffix}[];
extern const dp_io ${prefix}_outputs${p.suffix}[];
% endfor
extern const dp_io ${prefix}_state[];

/* All but Free return one of the codes above. Takes the memory and loads the constants and the initial state. */
int ${prefix}_Init(void);
void ${prefix}_Free(void);
/* `data` is dense and row-major, `bytes` long as the table says.
 *
 * Set...Part and Get...Part copy `bytes` bytes of the dense array from byte `offset` on, for a caller without room for the whole (parts may begin
 * and end anywhere, also within an element). Parts are got in any order. They are set in order: each begins where the last one of that tensor
 * has ended, or anew at 0, and the tensor counts as set when its last byte is written. Any other part, and one that reaches beyond the
 * tensor, is a ${prefix}_BAD_ARGUMENT and changes nothing. The functions without Part are the case of one part. */
% for p in programs:
int ${prefix}_Run${p.suffix}(void);
int ${prefix}_SetInput${p.suffix}(uint32_t index, const void *data, uint32_t bytes);
int ${prefix}_SetInputPart${p.suffix}(uint32_t index, uint32_t offset, const void *data, uint32_t bytes);
int ${prefix}_GetOutput${p.suffix}(uint32_t index, void *data, uint32_t bytes);
int ${prefix}_GetOutputPart${p.suffix}(uint32_t index, uint32_t offset, void *data, uint32_t bytes);
% endfor
int ${prefix}_SetState(uint32_t index, const void *data, uint32_t bytes);
int ${prefix}_SetStatePart(uint32_t index, uint32_t offset, const void *data, uint32_t bytes);
int ${prefix}_GetState(uint32_t index, void *data, uint32_t bytes);
int ${prefix}_GetStatePart(uint32_t index, uint32_t offset, void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
