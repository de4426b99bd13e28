/* Matrix products: y = clamp-requantised (alpha * (a - a_zero) (b - b_zero) + beta * c).
 *
 * Axes:     b0, b1, b2, m, n | k          (b*: batch; k is reduced, and may be split)
 * Operands: 0: y (b0, b1, b2, m, n)   1: a (b0, b1, b2, m, k)   2: b (b0, b1, b2, k, n)
 *           then, at the slots that the constant struct names (-1: absent), operands with the dimensions of y, any of them broadcast:
 *           c, mul, add, a_zero, b_zero.
 * Strides are free, so a transposed matrix is a view. Accumulators: int32_t (the typed kernels), int64_t (dp_gemm_any), float.
 * No scratch. The chain of additions of an output element runs over k in ascending order, whatever the tiles and cores.
 */
#ifndef DP_GEMM_H
#define DP_GEMM_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a_type, b_type, c_type, y_type, zero_type: type codes (dp_types.h). requantise: whether mul, add, shift, lo, hi, wide apply. */
typedef struct dp_gemm_cst {
  int64_t alpha64, beta64;
  int32_t a_type, b_type, c_type, y_type, a_zero_type, b_zero_type;
  int32_t c, mul, add, a_zero, b_zero;
  int32_t requantise, shift, lo, hi, wide;
} dp_gemm_cst;

typedef struct dp_gemm_f32_cst {
  int32_t c;
  float alpha, beta;
} dp_gemm_f32_cst;

/* int32_t accumulators, no zero points. The compiler has proven that alpha * sum + beta * c and its parts fit in 32 bits. */
void dp_gemm_i8_i8(const dp_args *args, const dp_team *team);
void dp_gemm_i8_u8(const dp_args *args, const dp_team *team);
void dp_gemm_u8_i8(const dp_args *args, const dp_team *team);
void dp_gemm_u8_u8(const dp_args *args, const dp_team *team);
/* Any integer types, zero points, int64_t accumulators; slow. */
void dp_gemm_any(const dp_args *args, const dp_team *team);
void dp_gemm_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
