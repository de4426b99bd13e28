/* ${title}: made by Deeploy ${version} for ${platform}. Do not edit.
 *
 * ${prefix}_Init, then per round: ${prefix}_SetInput for every input, ${prefix}_Run, ${prefix}_GetOutput; at the end ${prefix}_Free.
 * A run uses up the inputs whose memory it needs for other data: ${prefix}_Run returns ${prefix}_NOT_READY if one has to be set again.
 * Outputs can be read until the next ${prefix}_SetInput, ${prefix}_Run or ${prefix}_Free.
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

#define ${prefix}_INPUTS ${len(inputs)}u
#define ${prefix}_OUTPUTS ${len(outputs)}u
#define ${prefix}_STATES ${len(state)}u
#define ${prefix}_STEPS ${len(steps)}u

% for what, tensors in (("input", inputs), ("output", outputs), ("state", state)):
% for i, x in enumerate(tensors):
/* ${what} ${i}: ${comment(x.source)}, ${x.dtype} ${list(x.shape)}, ${x.bytes} bytes */
% endfor
% endfor
extern const dp_io ${prefix}_inputs[];
extern const dp_io ${prefix}_outputs[];
extern const dp_io ${prefix}_state[];

/* All but Free return one of the codes above. Takes the memory and loads the constants and the initial state. */
int ${prefix}_Init(void);
int ${prefix}_Run(void);
void ${prefix}_Free(void);
/* `data` is dense and row-major, `bytes` long as the table says. */
int ${prefix}_SetInput(uint32_t index, const void *data, uint32_t bytes);
int ${prefix}_GetOutput(uint32_t index, void *data, uint32_t bytes);
int ${prefix}_SetState(uint32_t index, const void *data, uint32_t bytes);
int ${prefix}_GetState(uint32_t index, void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
