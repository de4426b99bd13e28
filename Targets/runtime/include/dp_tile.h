/* Tile loops: boxes of an iteration space, the intervals of operands, and their transfers. Used by generated code on every runtime.
 *
 * Generated code holds one dp_axis per axis and one dp_operand per operand, all constant; a tile is computed, not tabulated.
 */
#ifndef DP_TILE_H
#define DP_TILE_H
#include "dp_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* size: of the axis. outer: tile size of the L3<->L2 loop (== size if that loop does not cut the axis). inner: tile size of the L2<->L1
 * loop, inner <= outer. */
typedef struct dp_axis {
  int32_t size, outer, inner;
  uint8_t reduced;
} dp_axis;

/* The iteration space of a step. order[]: axes from the outermost to the innermost loop, parallel axes before reduced ones. */
typedef struct dp_space {
  const dp_axis *axis;
  uint8_t axes;
  uint8_t order[DP_AXES];
} dp_space;

typedef enum dp_loop { DP_INNER = 0, DP_OUTER = 1 } dp_loop;

/* A box: first index and extent per axis. */
typedef struct dp_box {
  int32_t lo[DP_AXES];
  int32_t n[DP_AXES];
} dp_box;

typedef struct dp_dim {
  int32_t size;     /* elements of the dimension */
  int32_t stride;   /* elements between neighbours in the storage */
  int32_t offset;   /* added to the first index; minus the padding before */
  int32_t window;   /* elements per point */
  int32_t first_term, terms; /* slice of dp_operand.term */
} dp_dim;

typedef struct dp_term {
  uint8_t axis;
  int32_t coefficient;
} dp_term;

/* order[]: dimensions from outermost to innermost in memory; a tile is dense in that order. elem: bytes of an element.
 * axes: bit a is set if some term uses axis a: the operand's tile changes only if one of them moves. */
typedef struct dp_operand {
  const dp_dim *dim;
  const dp_term *term;
  uint8_t rank, elem;
  uint16_t axes;
  uint8_t order[DP_RANK];
} dp_operand;

/* Where an operand's data begins and how it is strided at one level: base element is index `lo` of every dimension. */
typedef struct dp_source {
  uintptr_t base;
  int32_t lo[DP_RANK];     /* index of the element at base, per dimension */
  int32_t stride[DP_RANK]; /* bytes */
} dp_source;

/* The clipped interval of every dimension for a box. */
typedef struct dp_region {
  int32_t lo[DP_RANK], ext[DP_RANK], pad[DP_RANK];
} dp_region;

/* First box of the loop over `within` (NULL: the whole space) with the tile sizes of `loop`. */
void dp_box_first(dp_box *box, const dp_space *space, const dp_box *within, dp_loop loop);
/* Next box; returns 0 if there is none. The last tile of an axis may be smaller. */
int dp_box_next(dp_box *box, const dp_space *space, const dp_box *within, dp_loop loop);
/* Whether the operand's region may differ between two boxes: one of its axes has moved. */
int dp_moved(const dp_operand *op, const dp_box *a, const dp_box *b);
/* Whether the box holds the first / the last part of its reduction, in the whole space. */
int dp_first(const dp_space *space, const dp_box *box);
int dp_last(const dp_space *space, const dp_box *box);

void dp_region_of(dp_region *region, const dp_operand *op, const dp_box *box);
/* The storage itself as a source. */
void dp_source_storage(dp_source *source, const dp_operand *op, uintptr_t base);
/* A dense tile of that region at `base` as a source. */
void dp_source_tile(dp_source *source, const dp_operand *op, const dp_region *region, uintptr_t base);
/* Fills `tile` for a dense tile of that region at `ptr` in L1. */
void dp_tile_of(dp_tile *tile, const dp_operand *op, const dp_region *region, void *ptr);

/* Transfers of one region between a dense tile and a source one level further out; split to the DMA's limits. */
void dp_move_l2(dp_dma *handle, const dp_operand *op, const dp_region *region, void *l1_tile, const dp_source *l2, dp_direction direction);
void dp_move_l3(dp_dma *handle, const dp_operand *op, const dp_region *region, void *l2_tile, const dp_source *l3, dp_direction direction);

#ifdef __cplusplus
}
#endif
#endif
