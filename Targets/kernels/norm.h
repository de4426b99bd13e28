/* Normalisations in float: over whole lines (layer, RMS, instance, group), and by known statistics (batch). */
#ifndef DP_NORM_H
#define DP_NORM_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of parallel axes (dp_lines.h). centre: whether the mean is subtracted. scaled, biased: whether there is that operand.
 * given: whether the statistics are operands. epsilon: added to the variance. */
typedef struct dp_norm_cst {
  int32_t rank, centre, scaled, biased, given;
  float epsilon;
} dp_norm_cst;

/* y = (x - mean) / sqrt(var + epsilon) * scale + bias, var the mean of (x - mean)^2; mean is 0 without `centre`.
 * Axes: parallel ones, then two that make a line together. Operands: x, y, scale if any, bias if any (only with scale), and with `given`
 * mean and 1 / sqrt(var + epsilon); all have one dimension per axis. In place if x and y are the same tile. */
void dp_norm_f32(const dp_args *args, const dp_team *team);

/* rank: number of parallel axes (dp_lines.h). epsilon: added to the variance. */
typedef struct dp_norm_stats_cst {
  int32_t rank;
  float epsilon;
} dp_norm_stats_cst;

/* The statistics of lines: mean, and 1 / sqrt(var + epsilon).
 * Axes: parallel ones, then two that make a line together. Operands: x [all axes], mean [parallel], inverse deviation [parallel]. */
void dp_norm_stats_f32(const dp_args *args, const dp_team *team);

/* rank: number of axes but the last. */
typedef struct dp_batch_norm_cst {
  int32_t rank;
  float epsilon;
} dp_batch_norm_cst;

/* y = (x - mean) * (scale / sqrt(var + epsilon)) + bias, element by element.
 * Axes: all parallel. Operands: x, scale, bias, mean, var, y; all have one dimension per axis. */
void dp_batch_norm_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
