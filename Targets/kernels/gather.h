/* Picking slices of a table: by an index tensor, or along an arithmetic progression that no view can express (backwards). */
#ifndef DP_GATHER_H
#define DP_GATHER_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* size: entries of the table. index_bytes: of an index element (1, 2, 4, 8); index_signed: whether it is signed. */
typedef struct dp_gather_cst {
  int32_t size, index_bytes, index_signed;
} dp_gather_cst;

/* y[a, k, b] = table[a, index[k], b]; negative indices count from the end; what is outside of the table is brought to its nearest entry.
 * Axes: a, k, b. Operands: table [a, whole table, b], index [k], y [a, k, b]; elements of 1, 2, 4 or 8 bytes. */
void dp_gather_1(const dp_args *args, const dp_team *team);
void dp_gather_2(const dp_args *args, const dp_team *team);
void dp_gather_4(const dp_args *args, const dp_team *team);
void dp_gather_8(const dp_args *args, const dp_team *team);

/* Entry of index 0, and how many entries further the next index is. */
typedef struct dp_stride_cst {
  int32_t start, step;
} dp_stride_cst;

/* y[a, k, b] = table[a, start + k * step, b].
 * Axes: a, k, b. Operands: table [a, whole table, b], y [a, k, b]; elements of 1, 2, 4 or 8 bytes. */
void dp_stride_1(const dp_args *args, const dp_team *team);
void dp_stride_2(const dp_args *args, const dp_team *team);
void dp_stride_4(const dp_args *args, const dp_team *team);
void dp_stride_8(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
