/* Integer approximations of softmax: iSoftmax, ITAMax and ITAPartialMax. */
#ifndef DP_ISOFTMAX_H
#define DP_ISOFTMAX_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* levels: n_levels - 1. a, b, c: coefficients; log2: the length of one halving. a, c >= 0, a*b*b + c > 0, log2 > 0. */
typedef struct dp_isoftmax_cst {
  int32_t rank, a, b, c, log2, levels;
} dp_isoftmax_cst;

/* Axes: parallel ones, then the line. Operands: x (the named type), y (uint8_t).
 * _32: all intermediate values fit int32_t; _64: they fit int64_t. The compiler proves which. */
#define DP_ISOFTMAX_DECLARE(T)                                              \
  void dp_isoftmax_##T##_32(const dp_args *args, const dp_team *team);      \
  void dp_isoftmax_##T##_64(const dp_args *args, const dp_team *team);
DP_ISOFTMAX_DECLARE(i8)
DP_ISOFTMAX_DECLARE(u8)
DP_ISOFTMAX_DECLARE(i16)
DP_ISOFTMAX_DECLARE(u16)
DP_ISOFTMAX_DECLARE(i32)
#undef DP_ISOFTMAX_DECLARE

/* numerator: 256 times the result's peak. group: elements of a group (ITAPartialMax); 0: the whole line at once (ITAMax). */
typedef struct dp_itamax_cst {
  int32_t rank, numerator, group;
} dp_itamax_cst;

/* Axes: parallel ones, then the line. Operands: x (the named type), y (uint8_t). */
void dp_itamax_i8(const dp_args *args, const dp_team *team);
void dp_itamax_u8(const dp_args *args, const dp_team *team);
void dp_itamax_i16(const dp_args *args, const dp_team *team);
void dp_itamax_u16(const dp_args *args, const dp_team *team);
void dp_itamax_i32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
