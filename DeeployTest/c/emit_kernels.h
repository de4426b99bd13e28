/* Small kernels for the tests of emitted code. */
#ifndef DP_EMIT_KERNELS_H
#define DP_EMIT_KERNELS_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dp_test_cst {
  float scale[2];
  int32_t rank;
} dp_test_cst;

/* y[m][n] = sum over k of a[m][k] * b[k][n]; int8 operands, int32 results and accumulators. Axes m, n, k; operands y, a, b. */
void dp_test_matmul(const dp_args *args, const dp_team *team);
/* y = scale[0] * a + scale[1] * b, floats. Axis i; operands a, b, y. */
void dp_test_blend(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
