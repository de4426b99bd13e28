/* Transfers, on the cluster's controller: between L1 and L2 by the cluster's DMA, between L2 and L3 by requests to the fabric controller.
 *
 * The SDK wants a structure of its own for every command until that is waited for. Commands in flight take them from a ring; one that finds
 * its place in the ring taken waits for the command there, which is the oldest one. dp_dma.pending counts those that nobody has waited for.
 *
 * Order: nothing is asked of the cluster's DMA. The requests to one RAM are handed to the fabric controller and its driver in the order in
 * which they are issued, and the driver queues them; that is the order that dp_runtime.h promises for one L3 handle. */
#include "dp_gap9.h"

#define L2_COMMANDS 8
#define L3_COMMANDS 8
/* What the DMA takes in one command without the help of an interrupt handler: sizes and strides of 16 bits. Pieces keep alignments. */
#define L2_PIECE 0xFFF8u
#define L2_STRIDES 0x10000u

static PI_L1 struct {
  pi_cl_dma_cmd_t command[L2_COMMANDS];
  dp_dma *owner[L2_COMMANDS]; /* NULL: free */
  uint32_t next;
} near_ring;

/* Read and written by the fabric controller too. */
static PI_L2 struct {
  pi_cl_ram_req_t request[L3_COMMANDS];
  dp_dma *owner[L3_COMMANDS];
  uint32_t next;
} far_ring;

/* ---- L2 ------------------------------------------------------------------------------------------------------------------------------- */

static void finish_l2(uint32_t i) {
  pi_cl_dma_cmd_wait(&near_ring.command[i]);
  near_ring.owner[i]->pending--;
  near_ring.owner[i] = NULL;
}

static pi_cl_dma_cmd_t *take_l2(dp_dma *handle) {
  const uint32_t i = near_ring.next++ % L2_COMMANDS;
  if (near_ring.owner[i]) finish_l2(i);
  near_ring.owner[i] = handle;
  handle->pending++;
  return &near_ring.command[i];
}

static uint32_t address_of(const void *pointer) { return (uint32_t)(uintptr_t)pointer; }

static void flat_l2(dp_dma *handle, uint8_t *l1, uint8_t *l2, uint32_t bytes, pi_cl_dma_dir_e direction) {
  for (uint32_t at = 0; at < bytes; at += L2_PIECE) {
    const uint32_t piece = bytes - at < L2_PIECE ? bytes - at : L2_PIECE;
    pi_cl_dma_cmd(address_of(l2 + at), address_of(l1 + at), piece, direction, take_l2(handle));
  }
}

void dp_dma_l2(dp_dma *handle, void *l1, void *l2, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  const pi_cl_dma_dir_e way = direction == DP_IN ? PI_CL_DMA_DIR_EXT2LOC : PI_CL_DMA_DIR_LOC2EXT;
  uint8_t *near_side = (uint8_t *)l1, *far_side = (uint8_t *)l2;
  if (row_bytes == 0 || rows == 0) return;
  DP_FENCE();
#ifdef DP_PROFILE
  if (direction == DP_IN)
    dp_gap9_count.l2_to_l1 += row_bytes * rows;
  else
    dp_gap9_count.l1_to_l2 += row_bytes * rows;
#endif
  if (rows == 1 || stride == row_bytes) {
    flat_l2(handle, near_side, far_side, row_bytes * rows, way);
  } else if (stride >= L2_STRIDES || row_bytes > L2_PIECE) {
    for (uint32_t r = 0; r < rows; r++) flat_l2(handle, near_side + r * row_bytes, far_side + r * stride, row_bytes, way);
  } else {
    const uint32_t most = L2_PIECE / row_bytes;
    for (uint32_t r = 0; r < rows; r += most) {
      const uint32_t count = rows - r < most ? rows - r : most;
      pi_cl_dma_cmd_2d(address_of(far_side + r * stride), address_of(near_side + r * row_bytes), count * row_bytes, stride, row_bytes, way,
                       take_l2(handle));
    }
  }
}

void dp_dma_l2_wait(dp_dma *handle) {
  if (handle->pending == 0) return;
#ifdef DP_PROFILE
  const uint32_t begin = dp_gap9_now();
#endif
  for (uint32_t i = 0; handle->pending != 0 && i < L2_COMMANDS; i++)
    if (near_ring.owner[i] == handle) finish_l2(i);
#ifdef DP_PROFILE
  dp_gap9_count.wait_l2 += dp_gap9_now() - begin;
#endif
  DP_FENCE();
}

/* ---- L3 ------------------------------------------------------------------------------------------------------------------------------- */

static void finish_l3(uint32_t i) {
  pi_cl_ram_copy_wait(&far_ring.request[i]);
  far_ring.owner[i]->pending--;
  far_ring.owner[i] = NULL;
}

void dp_dma_l3(dp_dma *handle, void *l2, dp_l3 l3, uint32_t row_bytes, uint32_t rows, uint32_t stride, dp_direction direction) {
  const uint32_t bytes = row_bytes * rows, address = (uint32_t)l3 - DP_L3_BASE, i = far_ring.next % L3_COMMANDS;
  const int inwards = direction == DP_IN;
  if (bytes == 0) return;
  far_ring.next++;
  if (far_ring.owner[i]) finish_l3(i);
  far_ring.owner[i] = handle;
  handle->pending++;
  DP_FENCE();
  if (rows == 1 || stride == row_bytes)
    pi_cl_ram_copy(&dp_gap9_ram_device, address, l2, bytes, inwards, &far_ring.request[i]);
  else
    pi_cl_ram_copy_2d(&dp_gap9_ram_device, address, l2, bytes, stride, row_bytes, inwards, &far_ring.request[i]);
#ifdef DP_PROFILE
  if (inwards)
    dp_gap9_count.l3_to_l2 += bytes;
  else
    dp_gap9_count.l2_to_l3 += bytes;
#endif
}

void dp_dma_l3_wait(dp_dma *handle) {
  if (handle->pending == 0) return;
#ifdef DP_PROFILE
  const uint32_t begin = dp_gap9_now();
#endif
  for (uint32_t i = 0; handle->pending != 0 && i < L3_COMMANDS; i++)
    if (far_ring.owner[i] == handle) finish_l3(i);
#ifdef DP_PROFILE
  dp_gap9_count.wait_l3 += dp_gap9_now() - begin;
#endif
  DP_FENCE();
}
