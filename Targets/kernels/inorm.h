/* Integer normalisations iLayerNorm and iRMSNorm. */
#ifndef DP_INORM_H
#define DP_INORM_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of parallel axes (dp_lines.h). centre: iLayerNorm (mean and bias, result wraps) or iRMSNorm (neither, result clamped).
 * shift: log2(D). */
typedef struct dp_inorm_cst {
  int32_t rank, centre, shift;
} dp_inorm_cst;

/* Axes: parallel ones, then the line. Operands: x (the named type), y (int8_t), weight (int32_t), with `centre` bias (int32_t).
 * _32: all intermediate values fit int32_t; _64: they fit int64_t. The compiler proves which. */
#define DP_INORM_DECLARE(T)                                              \
  void dp_inorm_##T##_32(const dp_args *args, const dp_team *team);      \
  void dp_inorm_##T##_64(const dp_args *args, const dp_team *team);
DP_INORM_DECLARE(i8)
DP_INORM_DECLARE(u8)
DP_INORM_DECLARE(i16)
DP_INORM_DECLARE(u16)
DP_INORM_DECLARE(i32)
#undef DP_INORM_DECLARE

#ifdef __cplusplus
}
#endif
#endif
