/* Element-wise integer kernels. Axes and operands as in dp_rows.h: inputs, then the output. Results may be computed in place.
 *
 * Sums, differences and products keep the low bits of the result (wrap-around); quotients truncate toward zero and are 0 where the
 * divisor is 0. Inputs may have different types: values are compared and computed as numbers (uint64 only with uint64).
 * dp_<op>_int takes any types; dp_<op>_<x>_<y>_<z> are the usual combinations. */
#ifndef DP_ELEMENTWISE_INTEGER_H
#define DP_ELEMENTWISE_INTEGER_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes; type_x, type_y, type_z: of the inputs and the output (dp_types.h). Operations with one input have type_y == type_x. */
typedef struct dp_elementwise_integer_cst {
  int32_t rank, type_x, type_y, type_z;
} dp_elementwise_integer_cst;

/* Two inputs. prelu and pow: y is the slope, the exponent (x^y with y < 0 truncates toward zero; 0^-1 is 0). */
#define DP_INTEGER_BINARY(K) K(add) K(sub) K(mul) K(div) K(min) K(max) K(pow) K(prelu)
/* Two inputs, a boolean output. */
#define DP_INTEGER_COMPARE(K) K(equal) K(greater) K(greater_or_equal) K(less) K(less_or_equal)
/* One input. */
#define DP_INTEGER_UNARY(K) K(neg) K(abs) K(relu) K(sign)

#define DP_DECLARE(name) void dp_##name##_int(const dp_args *args, const dp_team *team);
DP_INTEGER_BINARY(DP_DECLARE)
DP_INTEGER_COMPARE(DP_DECLARE)
DP_INTEGER_UNARY(DP_DECLARE)
#undef DP_DECLARE

/* The combinations of add, sub and mul with their own code. */
#define DP_INTEGER_FAST(K, name)                                                                      \
  K(name, i8, I8, i8, I8, i32, I32) K(name, u8, U8, u8, U8, i32, I32) K(name, i8, I8, u8, U8, i32, I32) \
  K(name, u8, U8, i8, I8, i32, I32) K(name, i32, I32, i32, I32, i32, I32) K(name, i8, I8, i32, I32, i32, I32) \
  K(name, i32, I32, i8, I8, i32, I32)

#define DP_DECLARE(name, x, X, y, Y, z, Z) void dp_##name##_##x##_##y##_##z(const dp_args *args, const dp_team *team);
DP_INTEGER_FAST(DP_DECLARE, add)
DP_INTEGER_FAST(DP_DECLARE, sub)
DP_INTEGER_FAST(DP_DECLARE, mul)
#undef DP_DECLARE

/* Clip: inputs x, lower, upper, all of type_x. */
void dp_clip_between_int(const dp_args *args, const dp_team *team);

/* rank: number of axes; type: of x and y (not uint64); lo64, hi64: bounds. */
typedef struct dp_clip_int_cst {
  int32_t rank, type;
  int64_t lo64, hi64;
} dp_clip_int_cst;
/* Input x: y = min(max(x, lo), hi). */
void dp_clip_int(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
