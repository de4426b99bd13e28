/* Integer forms of non-linear operations. Axes and operands as in dp_rows.h: inputs, then the output. Inputs and outputs have any integer
 * type; the compiler proves that nothing leaves 64 bits and that results fit the output's type. */
#ifndef DP_IACTIVATIONS_H
#define DP_IACTIVATIONS_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rank: number of axes; type_x, type_y, type_z: of the inputs and the output (dp_types.h), type_y == type_x with one input; type_b: of a
 * third input; narrow: whether everything fits 32 bits. a64, b64, c64: parameters a, b, c as listed below, else 0. */
typedef struct dp_iactivations_cst {
  int32_t rank, type_x, type_y, type_z, type_b, narrow;
  int64_t a64, b64, c64;
} dp_iactivations_cst;

/* x; a: b (negative), b: one.  q = min(|x|, -a); z = x * ((b + sign(x) * (b - (q + a)^2)) >> 1) */
void dp_igelu(const dp_args *args, const dp_team *team);
/* x; a: three, b: six, c: one over six.  z = x * (clamp(x + a, 0, b) * c) */
void dp_ihardswish(const dp_args *args, const dp_team *team);
/* x; a: factor, b: divisor (not 0).  z = floor(a * x / b) */
void dp_true_integer_div_by(const dp_args *args, const dp_team *team);
/* x, y; a: factor, b: eta, c: eps.  z = floor(a * x / (b * y + c)), 0 where the divisor is 0 */
void dp_true_integer_div(const dp_args *args, const dp_team *team);
/* x, y; a: factor, b: eta, c: eps.  d = b * y + c; n = a * x; z = (n + sgn(n) * (d >> 1)) / d truncated, sgn(0) = 1; 0 where d is 0 */
void dp_integer_div(const dp_args *args, const dp_team *team);
/* x, weight, bias, z int8; a: mul, b: shift.  z = ((x * weight + bias) * a) >> b, limited to int8 */
void dp_inonorm(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
