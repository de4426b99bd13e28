/* Conversions between element types: Cast, Quant, Dequant. Axes and operands as in dp_rows.h: x, then y. */
#ifndef DP_CONVERT_H
#define DP_CONVERT_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes; type_x, type_y: dp_types.h.
 * scale, zero: of Quant and Dequant; lo, hi: Quant's clamp. All 0 for casts. */
typedef struct dp_convert_cst {
  int32_t rank, type_x, type_y;
  float scale, zero;
  int32_t lo, hi;
} dp_convert_cst;

/* y = x in y's type. Integers to integers keep the low bits; to booleans: x != 0 (a not-a-number is true).
 * float32 to integers: truncation toward zero, saturated to the type's range, 0 for not-a-number. Integers to float32: nearest. */
void dp_cast(const dp_args *args, const dp_team *team);
/* y = clamp(round(x * scale + zero)), half away from zero; x float32, y of any integer type. */
void dp_quant_f32(const dp_args *args, const dp_team *team);
/* y = (x - zero) * scale; x of any integer type, or float32 holding whole numbers, y float32. */
void dp_dequant_f32(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
