/* Boxes, regions and transfers of tile loops (dp_tile.h), shared by all runtimes. Pure C, no state, no allocation. */
#include "dp_tile.h"

/* ---- boxes --------------------------------------------------------------------------------------------------------------------- */

static int32_t dp_tile_size(const dp_axis *axis, dp_loop loop) { return loop == DP_OUTER ? axis->outer : axis->inner; }

/* Puts one axis of the box at the beginning of `within` (NULL: of the whole space). */
static void dp_axis_first(dp_box *box, const dp_space *space, const dp_box *within, dp_loop loop, uint8_t a) {
  const int32_t n = within ? within->n[a] : space->axis[a].size;
  box->lo[a] = within ? within->lo[a] : 0;
  box->n[a] = dp_min(dp_tile_size(&space->axis[a], loop), n);
}

void dp_box_first(dp_box *box, const dp_space *space, const dp_box *within, dp_loop loop) {
  for (uint8_t a = 0; a < DP_AXES; a++) {
    box->lo[a] = 0;
    box->n[a] = 1;
  }
  for (uint8_t a = 0; a < space->axes; a++) dp_axis_first(box, space, within, loop, a);
}

int dp_box_next(dp_box *box, const dp_space *space, const dp_box *within, dp_loop loop) {
  for (int i = space->axes - 1; i >= 0; i--) {
    const uint8_t a = space->order[i];
    const int32_t tile = dp_tile_size(&space->axis[a], loop);
    const int32_t begin = within ? within->lo[a] : 0, size = within ? within->n[a] : space->axis[a].size;
    const int32_t left = size - (box->lo[a] - begin) - box->n[a];
    if (left > 0) {
      box->lo[a] += box->n[a];
      box->n[a] = dp_min(tile, left);
      return 1;
    }
    dp_axis_first(box, space, within, loop, a);
  }
  return 0;
}

int dp_moved(const dp_operand *op, const dp_box *a, const dp_box *b) {
  for (unsigned axis = 0; axis < DP_AXES; axis++)
    if (((unsigned)op->axes >> axis & 1u) != 0 && (a->lo[axis] != b->lo[axis] || a->n[axis] != b->n[axis])) return 1;
  return 0;
}

int dp_first(const dp_space *space, const dp_box *box) {
  for (uint8_t a = 0; a < space->axes; a++)
    if (space->axis[a].reduced && box->lo[a] != 0) return 0;
  return 1;
}

int dp_last(const dp_space *space, const dp_box *box) {
  for (uint8_t a = 0; a < space->axes; a++)
    if (space->axis[a].reduced && box->lo[a] + box->n[a] != space->axis[a].size) return 0;
  return 1;
}

/* ---- regions and sources ------------------------------------------------------------------------------------------------------- */

void dp_region_of(dp_region *region, const dp_operand *op, const dp_box *box) {
  for (uint8_t d = 0; d < op->rank; d++) {
    const dp_dim *dim = &op->dim[d];
    int32_t begin = dim->offset, end = dim->offset + dim->window;
    for (int32_t t = dim->first_term; t < dim->first_term + dim->terms; t++) {
      const dp_term *term = &op->term[t];
      begin += term->coefficient * box->lo[term->axis];
      end += term->coefficient * (box->lo[term->axis] + box->n[term->axis] - 1);
    }
    const int32_t lo = dp_clamp(begin, 0, dim->size);
    int32_t ext = dp_max(dp_min(end, dim->size) - lo, 0);
    if (dim->stride == 0) ext = dp_min(ext, 1); /* one element for the whole dimension */
    region->lo[d] = lo;
    region->ext[d] = ext;
    region->pad[d] = begin < 0 ? -begin : 0;
  }
}

void dp_source_storage(dp_source *source, const dp_operand *op, uintptr_t base) {
  source->base = base;
  for (uint8_t d = 0; d < op->rank; d++) {
    source->lo[d] = 0;
    source->stride[d] = op->dim[d].stride * op->elem;
  }
}

/* Strides, in units of `unit`, of a dense tile: 0 where the dimension has but one element in all. */
static void dp_dense(int32_t *stride, const dp_operand *op, const dp_region *region, int32_t unit) {
  for (int i = op->rank - 1; i >= 0; i--) {
    const uint8_t d = op->order[i];
    stride[d] = op->dim[d].stride == 0 || op->dim[d].size == 1 ? 0 : unit;
    unit *= dp_max(region->ext[d], 1);
  }
}

void dp_source_tile(dp_source *source, const dp_operand *op, const dp_region *region, uintptr_t base) {
  source->base = base;
  dp_dense(source->stride, op, region, op->elem);
  for (uint8_t d = 0; d < op->rank; d++) source->lo[d] = region->lo[d];
}

void dp_tile_of(dp_tile *tile, const dp_operand *op, const dp_region *region, void *ptr) {
  tile->ptr = ptr;
  dp_dense(tile->str, op, region, 1);
  for (uint8_t d = 0; d < op->rank; d++) {
    tile->ext[d] = region->ext[d];
    tile->pad[d] = region->pad[d];
  }
}

/* ---- transfers ----------------------------------------------------------------------------------------------------------------- */

/* A region as nested loops over the far side, from the innermost; level 0 are the bytes of a row. The near side is dense. */
typedef struct dp_nest {
  int32_t levels;
  int32_t ext[DP_RANK + 1];
  int32_t stride[DP_RANK + 1];
} dp_nest;

static int dp_nest_of(dp_nest *nest, const dp_operand *op, const dp_region *region, const dp_source *far_side) {
  int32_t top = 0;
  nest->ext[0] = op->elem;
  nest->stride[0] = 1;
  for (int i = op->rank - 1; i >= 0; i--) {
    const uint8_t d = op->order[i];
    const int32_t ext = region->ext[d], stride = far_side->stride[d];
    if (ext == 0) return 0;
    if (ext == 1) continue;
    if (stride == nest->ext[top] * nest->stride[top]) {
      nest->ext[top] *= ext; /* contiguous on both sides */
    } else {
      top++;
      nest->ext[top] = ext;
      nest->stride[top] = stride;
    }
  }
  nest->levels = top + 1;
  return 1;
}

static void dp_command(int level, dp_dma *handle, uintptr_t near_side, uintptr_t far_side, int32_t row_bytes, int32_t rows, int32_t stride,
                       dp_direction direction) {
  const uint32_t bytes = (uint32_t)row_bytes, count = (uint32_t)rows, step = (uint32_t)stride;
  if (level == 2)
    dp_dma_l2(handle, (void *)near_side, (void *)far_side, bytes, count, step, direction);
  else
    dp_dma_l3(handle, (void *)near_side, (dp_l3)far_side, bytes, count, step, direction);
}

/* `rows` rows, split so that no command is longer than the DMA takes; pieces of a row keep the alignment of its begin.
 *
 * The near side always ascends without gaps, over all commands of a region, also where the far side does not. An L3 read overwrites bytes
 * past its end: the commands of a handle are carried out in the order in which they are issued (dp_runtime.h), so those bytes are bytes of
 * later rows and come right after all, or they lie behind the last row, where the planner keeps room in the tile buffer. */
static void dp_rows(int level, dp_dma *handle, uintptr_t near_side, uintptr_t far_side, int32_t row_bytes, int32_t rows, int32_t stride,
                    dp_direction direction) {
  const int32_t limit = (int32_t)DP_DMA_MAX_BYTES, piece = limit & ~(int32_t)7;
  if (row_bytes > limit || (rows > 1 && stride < 0)) {
    for (int32_t r = 0; r < rows; r++) {
      for (int32_t at = 0; at < row_bytes; at += piece)
        dp_command(level, handle, near_side + (uintptr_t)at, far_side + (uintptr_t)at, dp_min(piece, row_bytes - at), 1,
                   dp_min(piece, row_bytes - at), direction);
      near_side += (uintptr_t)row_bytes;
      far_side += (uintptr_t)(intptr_t)stride;
    }
    return;
  }
  const int32_t most = limit / row_bytes;
  for (int32_t r = 0; r < rows; r += most) {
    const int32_t count = dp_min(most, rows - r);
    dp_command(level, handle, near_side, far_side, row_bytes, count, count > 1 ? stride : row_bytes, direction);
    near_side += (uintptr_t)row_bytes * (uintptr_t)count;
    far_side += (uintptr_t)(intptr_t)stride * (uintptr_t)count;
  }
}

static void dp_move(int level, dp_dma *handle, const dp_operand *op, const dp_region *region, uintptr_t near_side, const dp_source *source,
                    dp_direction direction) {
  dp_nest nest;
  int32_t index[DP_RANK + 1];
  if (!dp_nest_of(&nest, op, region, source)) return;
  uintptr_t far_side = source->base;
  for (uint8_t d = 0; d < op->rank; d++) {
    /* a dimension with one element for all has stride 0, whatever the index */
    far_side += (uintptr_t)((intptr_t)(region->lo[d] - source->lo[d]) * source->stride[d]);
  }
  for (int32_t l = 0; l < DP_RANK + 1; l++) index[l] = 0;
  const int32_t rows = nest.levels > 1 ? nest.ext[1] : 1, stride = nest.levels > 1 ? nest.stride[1] : nest.ext[0];
  for (;;) {
    dp_rows(level, handle, near_side, far_side, nest.ext[0], rows, stride, direction);
    near_side += (uintptr_t)nest.ext[0] * (uintptr_t)rows;
    int32_t l = 2;
    for (; l < nest.levels; l++) {
      far_side += (uintptr_t)(intptr_t)nest.stride[l];
      if (++index[l] < nest.ext[l]) break;
      far_side -= (uintptr_t)((intptr_t)nest.stride[l] * nest.ext[l]);
      index[l] = 0;
    }
    if (l >= nest.levels) return;
  }
}

void dp_move_l2(dp_dma *handle, const dp_operand *op, const dp_region *region, void *l1_tile, const dp_source *l2, dp_direction direction) {
  dp_move(2, handle, op, region, (uintptr_t)l1_tile, l2, direction);
}

void dp_move_l3(dp_dma *handle, const dp_operand *op, const dp_region *region, void *l2_tile, const dp_source *l3, dp_direction direction) {
  dp_move(3, handle, op, region, (uintptr_t)l2_tile, l3, direction);
}
