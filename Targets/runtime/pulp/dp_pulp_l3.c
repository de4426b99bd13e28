/* Transfers between L2 and L3 (uDMA with the HyperBus).
 *
 * The unit has 8 windows that each take a command, and serves those that have one in cyclic order. Commands are given to the windows in
 * cyclic order too, so they are carried out in the order in which they were issued, one after the other. Hence
 *   - a handle is done when its last command is: dp_dma.id is that command's number;
 *   - a read, which overwrites up to 3 bytes past the end of a row, never hits bytes of its own handle that came before, because rows are issued
 *     in ascending order. The planner keeps such bytes free behind a buffer. */
#include "dp_pulp.h"

#define WINDOWS 8u

/* Registers of a window. */
enum {
  RX_ADDRESS = 0x00, TX_ADDRESS = 0x0C, /* +4 size, +8 start */
  COMMAND = 0x18, FAR_ADDRESS = 0x1C, STATUS = 0x24,
  ROWS_ON = 0x28, ROW_BYTES = 0x2C, ROW_STRIDE = 0x30
};
enum { PAGE_BOUND = 0x00, LATENCY = 0x04, LONG_LATENCY = 0x08, SELECT_MAX = 0x0C, CHIP = 0x20 };

static DP_L1_DATA struct {
  uint32_t issued, done; /* numbers of the last commands */
  uint32_t chip;         /* selected */
} bus;

static uintptr_t window_of(uint32_t number) { return HYPER_WINDOW + 128u * (number % WINDOWS); }

static void select_chip(uint32_t chip) {
  bus.chip = chip;
  *dp_reg(HYPER_COMMON + LONG_LATENCY) = chip == 0;
  *dp_reg(HYPER_COMMON + CHIP) = chip;
  *dp_reg(HYPER_COMMON + SELECT_MAX) = ~0u;
  *dp_reg(HYPER_COMMON + LATENCY) = chip == 0 ? 6u : 15u;
  *dp_reg(HYPER_COMMON + PAGE_BOUND) = chip == 0 ? 3u : 4u;
}

void dp_hyper_start(void) {
  *dp_reg(UDMA_GATE) |= HYPER_GATE;
  for (uint32_t w = 0; w < WINDOWS; w++)
    for (uintptr_t r = ROWS_ON; r < ROWS_ON + 24u; r += 4u) *dp_reg(window_of(w) + r) = 0;
  select_chip(0);
}

/* Waits until all commands up to this number are done. */
static void wait_for(uint32_t number) {
  while ((int32_t)(number - bus.done) > 0) {
    while (*dp_reg(window_of(bus.done + 1u) + STATUS) & 1u) {
    }
    bus.done++;
  }
}

static uint32_t issue(void *near_side, uint32_t far_side, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  const uint32_t number = bus.issued + 1u;
  if (number - bus.done > WINDOWS) wait_for(number - WINDOWS);
  const uintptr_t window = window_of(number), channel = window + (direction == DP_IN ? RX_ADDRESS : TX_ADDRESS);
  const uint32_t flat = rows == 1u || stride == row_bytes;
  bus.issued = number;
  *dp_reg(window + ROWS_ON) = !flat;
  if (!flat) {
    *dp_reg(window + ROW_BYTES) = row_bytes;
    *dp_reg(window + ROW_STRIDE) = stride;
  }
  *dp_reg(window + COMMAND) = direction == DP_IN ? 5u : 1u;
  *dp_reg(window + FAR_ADDRESS) = far_side;
  *dp_reg(channel) = (uint32_t)(uintptr_t)near_side;
  *dp_reg(channel + 4u) = row_bytes * rows;
  *dp_reg(channel + 8u) = 1u << 4;
  return number;
}

void dp_hyper_copy(uint32_t chip, void *near_side, uint32_t far_side, uint32_t bytes, dp_direction direction) {
  if (bytes == 0) return;
  if (bus.chip != chip) select_chip(chip);
  wait_for(issue(near_side, far_side, bytes, 1, bytes, direction));
  DP_FENCE();
}

void dp_dma_l3(dp_dma *handle, void *l2, dp_l3 l3, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  if (row_bytes * rows == 0) return;
  if (bus.chip != 0) select_chip(0);
  DP_FENCE();
  handle->pending++;
  handle->id = issue(l2, (uint32_t)l3 - L3_BASE, row_bytes, rows, stride, direction);
#ifdef DP_PROFILE
  if (direction == DP_IN)
    dp_pulp_count.l3_to_l2 += row_bytes * rows;
  else
    dp_pulp_count.l2_to_l3 += row_bytes * rows;
#endif
}

void dp_dma_l3_wait(dp_dma *handle) {
  if (handle->pending == 0) return;
  handle->pending = 0;
  if ((int32_t)(handle->id - bus.done) <= 0) return;
#ifdef DP_PROFILE
  const uint32_t begin = dp_now();
  wait_for(handle->id);
  dp_pulp_count.wait_l3 += dp_now() - begin;
#else
  wait_for(handle->id);
#endif
  DP_FENCE();
}

void dp_l3_read(void *data, dp_l3 l3, uint32_t bytes) {
  const uint32_t whole = bytes & ~3u, from = (uint32_t)l3 - L3_BASE;
  uint32_t word = 0;
  dp_hyper_copy(0, data, from, whole, DP_IN);
  if (bytes == whole) return;
  dp_hyper_copy(0, &word, from + whole, bytes - whole, DP_IN);
  __builtin_memcpy((uint8_t *)data + whole, &word, bytes - whole);
}

void dp_l3_write(dp_l3 l3, const void *data, uint32_t bytes) {
  dp_hyper_copy(0, (void *)(uintptr_t)data, (uint32_t)l3 - L3_BASE, bytes, DP_OUT);
}
