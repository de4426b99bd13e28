/* Reductions over any set of axes, and the position of the largest or smallest element. */
#ifndef DP_REDUCE_H
#define DP_REDUCE_H
#include "dp_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is done with the accumulated value. */
enum {
  DP_REDUCE_PLAIN = 0,
  DP_REDUCE_MEAN = 1,     /* float: divide. Integer: divide, half away from zero; by a power of two half up */
  DP_REDUCE_ROOT = 2,     /* float: square root */
  DP_REDUCE_LOG = 3,      /* float: natural logarithm */
  DP_REDUCE_TRUNCATED = 4 /* integer: divide, toward zero */
};

/* rank: parallel axes; reduced: axes after them. count: elements that are reduced to one, over all tiles. out_bytes: of an integer result. */
typedef struct dp_reduce_cst {
  int32_t rank, reduced, finish, count, out_bytes;
} dp_reduce_cst;

/* Axes: the parallel ones, then the reduced ones. Operands: x [parallel, reduced], y [parallel]. Elements are accumulated in the order of
 * the reduced axes; a split reduction continues from `acc`. Suffixes: type of x, type of the accumulator (for float: float). Integers
 * wrap around in the accumulator and in the result. */
#define DP_REDUCE_DECLARE(f, T) void dp_reduce_##f##_##T(const dp_args *args, const dp_team *team);
#define DP_REDUCE_DECLARE_COMMON(T) DP_REDUCE_DECLARE(sum, T) DP_REDUCE_DECLARE(max, T) DP_REDUCE_DECLARE(min, T)
#define DP_REDUCE_DECLARE_ALL(T) \
  DP_REDUCE_DECLARE_COMMON(T) DP_REDUCE_DECLARE(sumsq, T) DP_REDUCE_DECLARE(sumabs, T) DP_REDUCE_DECLARE(prod, T)
DP_REDUCE_DECLARE_ALL(f32)
DP_REDUCE_DECLARE_COMMON(i8_i32)
DP_REDUCE_DECLARE_COMMON(u8_i32)
DP_REDUCE_DECLARE_COMMON(i16_i32)
DP_REDUCE_DECLARE_COMMON(u16_i32)
DP_REDUCE_DECLARE_COMMON(i32_i32)
DP_REDUCE_DECLARE_ALL(i8_i64)
DP_REDUCE_DECLARE_ALL(u8_i64)
DP_REDUCE_DECLARE_ALL(i16_i64)
DP_REDUCE_DECLARE_ALL(u16_i64)
DP_REDUCE_DECLARE_ALL(i32_i64)
DP_REDUCE_DECLARE_ALL(u32_i64)
DP_REDUCE_DECLARE_ALL(i64_i64)
#undef DP_REDUCE_DECLARE_ALL
#undef DP_REDUCE_DECLARE_COMMON
#undef DP_REDUCE_DECLARE

/* rank: parallel axes (dp_lines.h). smallest: ArgMin instead of ArgMax. last: the last of equal ones instead of the first. */
typedef struct dp_arg_cst {
  int32_t rank, smallest, last;
} dp_arg_cst;

/* Axes: the parallel ones, then the line. Operands: x (the named type), y [parallel] (int64_t): position of the extreme in its line. */
void dp_arg_f32(const dp_args *args, const dp_team *team);
void dp_arg_i8(const dp_args *args, const dp_team *team);
void dp_arg_u8(const dp_args *args, const dp_team *team);
void dp_arg_i16(const dp_args *args, const dp_team *team);
void dp_arg_u16(const dp_args *args, const dp_team *team);
void dp_arg_i32(const dp_args *args, const dp_team *team);
void dp_arg_u32(const dp_args *args, const dp_team *team);
void dp_arg_i64(const dp_args *args, const dp_team *team);

#ifdef __cplusplus
}
#endif
#endif
