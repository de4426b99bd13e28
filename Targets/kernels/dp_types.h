/* Element types as numbers, for kernels that take them at run time (the numbers are in Deeploy/program/dtypes.py), and access to
 * integer elements of any type. With a constant type the switch disappears. */
#ifndef DP_TYPES_H
#define DP_TYPES_H
#include "dp_kernel.h"

#define DP_I8 0
#define DP_U8 1
#define DP_I16 2
#define DP_U16 3
#define DP_I32 4
#define DP_U32 5
#define DP_I64 6
#define DP_U64 7
#define DP_F32 8
#define DP_B8 9

/* 64-bit elements as tiles hold them: aligned to 4 bytes. */
typedef int64_t __attribute__((aligned(4))) dp_i64;
typedef uint64_t __attribute__((aligned(4))) dp_u64;

#define DP_INLINE static inline __attribute__((always_inline))

/* Element i of an integer array; uint64 values as their bit pattern. */
DP_INLINE int64_t dp_load(const void *p, int32_t type, int32_t i) {
  switch (type) {
    case DP_I8: return ((const int8_t *)p)[i];
    case DP_I16: return ((const int16_t *)p)[i];
    case DP_U16: return ((const uint16_t *)p)[i];
    case DP_I32: return ((const int32_t *)p)[i];
    case DP_U32: return ((const uint32_t *)p)[i];
    case DP_I64: return ((const dp_i64 *)p)[i];
    case DP_U64: return (int64_t)((const dp_u64 *)p)[i];
    default: return ((const uint8_t *)p)[i];
  }
}

/* Keeps the low bits: results wrap around. */
DP_INLINE void dp_store(void *p, int32_t type, int32_t i, int64_t v) {
  switch (type) {
    case DP_I8: ((int8_t *)p)[i] = (int8_t)v; break;
    case DP_I16: ((int16_t *)p)[i] = (int16_t)v; break;
    case DP_U16: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case DP_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case DP_U32: ((uint32_t *)p)[i] = (uint32_t)v; break;
    case DP_I64: ((dp_i64 *)p)[i] = v; break;
    case DP_U64: ((dp_u64 *)p)[i] = (uint64_t)v; break;
    default: ((uint8_t *)p)[i] = (uint8_t)v; break;
  }
}

#endif
