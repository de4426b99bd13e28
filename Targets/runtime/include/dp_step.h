/* Steps: the tile loops of generated code, driven by constant tables. Used on every runtime.
 *
 * A step is an outer loop over tiles in L2 (only where an operand is at home in L3) around an inner loop over tiles in L1 around kernel
 * calls. Transfers overlap with computation where an operand has two copies of its tile buffer.
 */
#ifndef DP_STEP_H
#define DP_STEP_H
#include "dp_tile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operand of a step.
 * base:   the variable that holds the address of its storage (a pointer into L2, or a dp_l3); NULL for an immediate.
 * offset: bytes from there to the operand's first element.
 * imm:    the bytes of an immediate.
 * near:   its tile buffers in L1; far: those in L2, copies == 0 unless it is at home in L3. Offsets are in the arenas. */
typedef struct dp_buffers {
  uint32_t bytes;
  uint32_t offset[2];
  uint8_t copies; /* 0 to 2 */
} dp_buffers;

typedef struct dp_step_operand {
  const dp_operand *op;
  const uintptr_t *base;
  int32_t offset;
  const uint8_t *imm;
  uint8_t loads, stores;
  dp_buffers near, far;
} dp_step_operand;

/* A kernel call: its constant struct, and which operands and axes of the step are the kernel's, in the kernel's order. */
typedef struct dp_call {
  dp_kernel kernel;
  const void *cst;
  uint8_t operands, axes;
  uint8_t operand[DP_OPERANDS];
  uint8_t axis[DP_AXES];
} dp_call;

/* acc, scratch: L1 blocks (copies 0 or 1). outer: whether there is an outer loop. */
typedef struct dp_step {
  dp_space space;
  const dp_step_operand *operand;
  const dp_call *call;
  uint8_t operands, calls, cores, outer;
  dp_buffers acc, scratch;
} dp_step;

/* The tile buffers of one operand at one level. now: the copy that the current tile is in. Each copy has its own handle, for the load that
 * fills it and for the store that empties it. */
typedef struct dp_slot {
  void *buffer[2];
  dp_region region[2];
  dp_dma dma[2];
  uint8_t now;
} dp_slot;

/* What the cores read most while a step runs. It lies on the controller's stack, which is in L1 on the chip. */
typedef struct dp_work {
  dp_args args;
  dp_source near_source[DP_OPERANDS]; /* where the inner loop finds an operand */
} dp_work;

/* What a network needs to run its steps: the arenas, set by the network, and the working state of the current step. All zero at first. */
typedef struct dp_state {
  void *l1, *l2;
  dp_l3 l3;
  dp_slot near_slot[DP_OPERANDS], far_slot[DP_OPERANDS];
  dp_source far_source[DP_OPERANDS]; /* where the outer loop finds an operand */
  dp_work *work;                     /* of the step that runs */
  dp_box at;                         /* the last tile of the inner loop */
  uint8_t begun;                     /* whether `at` is of this step */
} dp_state;

void dp_step_run(const dp_step *step, dp_state *state);

#ifdef __cplusplus
}
#endif
#endif
