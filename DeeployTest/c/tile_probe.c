/* DMA for tests of dp_tile.c through ctypes: copies at once and keeps what the test wants to know of the commands. */
#include <string.h>

#include "dp_tile.h"

uint64_t probe_commands, probe_bytes, probe_largest;

static void probe(void *near_side, uint8_t *far_side, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  uint8_t *p = (uint8_t *)near_side;
  const uint64_t bytes = (uint64_t)row_bytes * rows;
  probe_commands++;
  probe_bytes += bytes;
  if (bytes > probe_largest) probe_largest = bytes;
  for (uint32_t i = 0; i < rows; i++, p += row_bytes, far_side += stride) {
    if (direction == DP_IN)
      memcpy(p, far_side, row_bytes);
    else
      memcpy(far_side, p, row_bytes);
  }
}

void dp_dma_l2(dp_dma *handle, void *l1, void *l2, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  (void)handle;
  probe(l1, (uint8_t *)l2, row_bytes, rows, stride, direction);
}
void dp_dma_l3(dp_dma *handle, void *l2, dp_l3 l3, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  (void)handle;
  probe(l2, (uint8_t *)l3, row_bytes, rows, stride, direction);
}
