/* The loops of dp_step.h. Runs on the cluster's controller. */
#include "dp_step.h"

#include <string.h>

typedef enum dp_hop { DP_NEAR, DP_FAR } dp_hop;

static int is_immediate(const dp_step_operand *o) { return o->base == NULL; }

static const dp_buffers *buffers_of(const dp_step_operand *o, dp_hop hop) { return hop == DP_NEAR ? &o->near : &o->far; }

static dp_slot *slot_of(dp_state *state, dp_hop hop, uint32_t i) { return hop == DP_NEAR ? &state->near_slot[i] : &state->far_slot[i]; }

static void wait_for(dp_dma *handle, dp_hop hop) {
  if (hop == DP_NEAR)
    dp_dma_l2_wait(handle);
  else
    dp_dma_l3_wait(handle);
}

static void move(const dp_step *step, dp_state *state, dp_hop hop, uint32_t i, uint32_t copy, dp_direction direction) {
  const dp_operand *op = step->operand[i].op;
  dp_slot *slot = slot_of(state, hop, i);
  if (hop == DP_NEAR)
    dp_move_l2(&slot->dma[copy], op, &slot->region[copy], slot->buffer[copy], &state->work->near_source[i], direction);
  else
    dp_move_l3(&slot->dma[copy], op, &slot->region[copy], slot->buffer[copy], &state->far_source[i], direction);
}

static void load(const dp_step *step, dp_state *state, dp_hop hop, uint32_t i, uint32_t copy, const dp_box *box) {
  dp_region_of(&slot_of(state, hop, i)->region[copy], step->operand[i].op, box);
  move(step, state, hop, i, copy, DP_IN);
}

/* The first tile of a loop. An L1 tile that is still there from the last outer tile is not loaded again. */
static void begin(const dp_step *step, dp_state *state, dp_hop hop, const dp_box *box) {
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    dp_slot *slot = slot_of(state, hop, i);
    if (!buffers_of(o, hop)->copies) continue;
    if (!o->loads)
      dp_region_of(&slot->region[slot->now], o->op, box);
    else if (hop == DP_FAR || !state->begun || dp_moved(o->op, &state->at, box))
      load(step, state, hop, i, slot->now, box);
  }
}

/* Loads what moves with the next tile into the other copy, where there is one. */
static void prefetch(const dp_step *step, dp_state *state, dp_hop hop, const dp_box *box, const dp_box *next) {
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    dp_slot *slot = slot_of(state, hop, i);
    const uint32_t other = slot->now ^ 1u;
    if (!o->loads || buffers_of(o, hop)->copies != 2 || !dp_moved(o->op, box, next)) continue;
    if (o->stores) wait_for(&slot->dma[other], hop);
    load(step, state, hop, i, other, next);
  }
}

/* Waits for the loads of the current tile, and for the last stores from the buffers that it will be written to. */
static void settle(const dp_step *step, dp_state *state, dp_hop hop) {
  for (uint32_t i = 0; i < step->operands; i++) {
    dp_slot *slot = slot_of(state, hop, i);
    if (buffers_of(&step->operand[i], hop)->copies) wait_for(&slot->dma[slot->now], hop);
  }
}

/* Stores what the tile has completed: only after the last part of its reduction. */
static void store(const dp_step *step, dp_state *state, dp_hop hop, const dp_box *box) {
  if (!dp_last(&step->space, box)) return;
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    if (o->stores && buffers_of(o, hop)->copies) move(step, state, hop, i, slot_of(state, hop, i)->now, DP_OUT);
  }
}

/* Goes on to the next tile: changes copies, and loads what has no second copy. */
static void advance(const dp_step *step, dp_state *state, dp_hop hop, const dp_box *box, const dp_box *next) {
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    const uint32_t copies = buffers_of(o, hop)->copies;
    dp_slot *slot = slot_of(state, hop, i);
    if (!copies || !dp_moved(o->op, box, next)) continue;
    if (copies == 2) {
      slot->now ^= 1u;
    } else if (o->loads) {
      if (o->stores) wait_for(&slot->dma[0], hop);
      load(step, state, hop, i, 0, next);
    }
    if (!o->loads) dp_region_of(&slot->region[slot->now], o->op, next);
  }
}

static void drain(const dp_step *step, dp_state *state, dp_hop hop) {
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    for (uint32_t copy = 0; o->stores && copy < buffers_of(o, hop)->copies; copy++) wait_for(&slot_of(state, hop, i)->dma[copy], hop);
  }
}

static void call_kernels(const dp_step *step, dp_state *state, const dp_box *box) {
  dp_args *args = &state->work->args;
  args->first = (uint8_t)dp_first(&step->space, box);
  args->last = (uint8_t)dp_last(&step->space, box);
  for (uint32_t c = 0; c < step->calls; c++) {
    const dp_call *call = &step->call[c];
    args->cst = call->cst;
    for (uint32_t k = 0; k < call->axes; k++) {
      args->n[k] = box->n[call->axis[k]];
      args->lo[k] = box->lo[call->axis[k]];
    }
    for (uint32_t k = 0; k < call->operands; k++) {
      const uint32_t i = call->operand[k];
      const dp_step_operand *o = &step->operand[i];
      const dp_slot *slot = &state->near_slot[i];
      if (is_immediate(o)) {
        dp_region region;
        dp_region_of(&region, o->op, box);
        memcpy(args->t[k].imm.bytes, o->imm, o->op->elem);
        dp_tile_of(&args->t[k], o->op, &region, args->t[k].imm.bytes);
      } else {
        dp_tile_of(&args->t[k], o->op, &slot->region[slot->now], slot->buffer[slot->now]);
      }
    }
    dp_fork(step->cores, call->kernel, args);
  }
}

static void inner_loop(const dp_step *step, dp_state *state, const dp_box *outer) {
  dp_box box, next;
  int more;
  dp_box_first(&box, &step->space, outer, DP_INNER);
  begin(step, state, DP_NEAR, &box);
  for (;;) {
    next = box;
    more = dp_box_next(&next, &step->space, outer, DP_INNER);
    if (more) prefetch(step, state, DP_NEAR, &box, &next);
    settle(step, state, DP_NEAR);
    call_kernels(step, state, &box);
    store(step, state, DP_NEAR, &box);
    if (!more) break;
    advance(step, state, DP_NEAR, &box, &next);
    box = next;
  }
  drain(step, state, DP_NEAR);
  state->at = box;
  state->begun = 1;
}

static void outer_loop(const dp_step *step, dp_state *state) {
  dp_box box, next;
  int more;
  dp_box_first(&box, &step->space, NULL, DP_OUTER);
  begin(step, state, DP_FAR, &box);
  for (;;) {
    next = box;
    more = dp_box_next(&next, &step->space, NULL, DP_OUTER);
    if (more) prefetch(step, state, DP_FAR, &box, &next);
    settle(step, state, DP_FAR);
    for (uint32_t i = 0; i < step->operands; i++) {
      const dp_slot *slot = &state->far_slot[i];
      if (step->operand[i].far.copies)
        dp_source_tile(&state->work->near_source[i], step->operand[i].op, &slot->region[slot->now], (uintptr_t)slot->buffer[slot->now]);
    }
    inner_loop(step, state, &box);
    store(step, state, DP_FAR, &box);
    if (!more) break;
    advance(step, state, DP_FAR, &box, &next);
    box = next;
  }
  drain(step, state, DP_FAR);
}

static void open_buffers(const dp_step *step, dp_state *state) {
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    for (uint32_t copy = 0; copy < o->near.copies; copy++)
      state->near_slot[i].buffer[copy] = dp_open_l1(state->l1, o->near.offset[copy], o->near.bytes);
    for (uint32_t copy = 0; copy < o->far.copies; copy++)
      state->far_slot[i].buffer[copy] = dp_open_l2(state->l2, o->far.offset[copy], o->far.bytes);
    state->near_slot[i].now = state->far_slot[i].now = 0;
    if (!is_immediate(o)) {
      dp_source *source = o->far.copies ? &state->far_source[i] : &state->work->near_source[i];
      dp_source_storage(source, o->op, *o->base + (uintptr_t)(intptr_t)o->offset);
    }
  }
  state->work->args.acc = step->acc.copies ? dp_open_l1(state->l1, step->acc.offset[0], step->acc.bytes) : NULL;
  state->work->args.scratch = step->scratch.copies ? dp_open_l1(state->l1, step->scratch.offset[0], step->scratch.bytes) : NULL;
}

static void close_buffers(const dp_step *step, dp_state *state) {
  if (step->scratch.copies) dp_close_l1(state->work->args.scratch, step->scratch.bytes);
  if (step->acc.copies) dp_close_l1(state->work->args.acc, step->acc.bytes);
  for (uint32_t i = 0; i < step->operands; i++) {
    const dp_step_operand *o = &step->operand[i];
    for (uint32_t copy = 0; copy < o->far.copies; copy++) dp_close_l2(state->far_slot[i].buffer[copy], o->far.bytes);
    for (uint32_t copy = 0; copy < o->near.copies; copy++) dp_close_l1(state->near_slot[i].buffer[copy], o->near.bytes);
  }
}

void dp_step_run(const dp_step *step, dp_state *state) {
  dp_work work;
  memset(&work.args, 0, sizeof work.args);
  state->work = &work;
  open_buffers(step, state);
  state->begun = 0;
  if (step->outer)
    outer_loop(step, state);
  else
    inner_loop(step, state, NULL);
  close_buffers(step, state);
  state->work = NULL;
}
