/* Requantisation and the requantised sum. Axes and operands as in dp_rows.h; the result is one byte, int8 or uint8 by its clamp. */
#ifndef DP_REQUANT_KERNELS_H
#define DP_REQUANT_KERNELS_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes; type: of x (dp_types.h); shift, lo, hi, wide: dp_requant.h. */
typedef struct dp_requant_cst {
  int32_t rank, type, shift, lo, hi, wide;
} dp_requant_cst;

/* Inputs x, mul, add (int32); output y. dp_requant_int takes x of any integer type. */
void dp_requant_i8(const dp_args *args, const dp_team *team);
void dp_requant_u8(const dp_args *args, const dp_team *team);
void dp_requant_i32(const dp_args *args, const dp_team *team);
void dp_requant_int(const dp_args *args, const dp_team *team);

/* Of each input a, b: its type, and the numbers of its own requantisation (mul 1, add 0, shift 0 and the clamp of its range if it has none).
 * shift, lo, hi, wide: of the sum. */
typedef struct dp_requantized_add_cst {
  int32_t rank;
  int32_t type_a, mul_a, add_a, shift_a, lo_a, hi_a, wide_a;
  int32_t type_b, mul_b, add_b, shift_b, lo_b, hi_b, wide_b;
  int32_t shift, lo, hi, wide;
} dp_requantized_add_cst;

/* Inputs a, b, mul, add (int32); output y = requant(requant_a(a) + requant_b(b), mul, add). */
void dp_requantized_add_i8_i8(const dp_args *args, const dp_team *team);
void dp_requantized_add_int(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
