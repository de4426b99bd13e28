/* Transfers between L1 and L2 (mchan). Runs on the cluster's controller.
 *
 * The unit has 16 ids that count bytes in flight. A command is counted under the id that its core has allocated last, so a handle that is
 * added to after another one was begun takes a further id: dp_dma.id is a mask of ids. */
#include "dp_pulp.h"

#define IDS 16
#define TO_L1 (1u << 17)
#define INCREMENT (1u << 18)
#define ROWS (1u << 19)
#define NOTIFY (1u << 20)

static DP_L1_DATA struct {
  uint32_t taken;   /* mask of ids */
  uint32_t current; /* the one allocated last, as a mask */
  dp_dma *owner[IDS];
} unit;

static void take_id(dp_dma *handle) {
  /* An allocation without a free id stops the core for good: it is the one that would have to free some. */
  if (unit.taken == (1u << IDS) - 1u) dp_dma_l2_wait(unit.owner[0]);
  const uint32_t id = *dp_reg(MCHAN_COMMAND);
  unit.current = 1u << id;
  unit.taken |= unit.current;
  unit.owner[id] = handle;
  handle->id |= unit.current;
}

void dp_dma_l2(dp_dma *handle, void *l1, void *l2, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  const uint32_t bytes = row_bytes * rows, flat = rows == 1u || stride == row_bytes;
  if (bytes == 0) return;
  if ((handle->id & unit.current) == 0) take_id(handle);
  handle->pending++;
  *dp_reg(MCHAN_COMMAND) = bytes | INCREMENT | NOTIFY | (direction == DP_IN ? TO_L1 : 0u) | (flat ? 0u : ROWS);
  *dp_reg(MCHAN_COMMAND) = (uint32_t)(uintptr_t)l1;
  *dp_reg(MCHAN_COMMAND) = (uint32_t)(uintptr_t)l2;
  if (!flat) {
    *dp_reg(MCHAN_COMMAND) = row_bytes;
    *dp_reg(MCHAN_COMMAND) = stride;
  }
#ifdef DP_PROFILE
  if (direction == DP_IN)
    dp_pulp_count.l2_to_l1 += bytes;
  else
    dp_pulp_count.l1_to_l2 += bytes;
#endif
}

void dp_dma_l2_wait(dp_dma *handle) {
  const uint32_t mask = handle->id;
  if (mask == 0) return;
  if (*dp_reg(MCHAN_STATUS) & mask) {
#ifdef DP_PROFILE
    const uint32_t begin = dp_now();
#endif
    /* An event is kept until it is waited for, so one that comes after the check of the status is not lost; and only while waiting is it
     * masked in, because it would end a barrier too. */
    *dp_reg(EVENT_MASK_OFF) = 1u << EVENT_BIT_BARRIER;
    *dp_reg(EVENT_MASK_ON) = 1u << EVENT_BIT_DMA;
    while (*dp_reg(MCHAN_STATUS) & mask) dp_event_load(EVENT_WAIT);
    *dp_reg(EVENT_MASK_OFF) = 1u << EVENT_BIT_DMA;
    *dp_reg(EVENT_MASK_ON) = 1u << EVENT_BIT_BARRIER;
#ifdef DP_PROFILE
    dp_pulp_count.wait_l2 += dp_now() - begin;
#endif
  }
  *dp_reg(MCHAN_STATUS) = mask;
  unit.taken &= ~mask;
  handle->id = 0;
  handle->pending = 0;
  DP_FENCE();
}
