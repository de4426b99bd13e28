/* Tensors as the caller sees them: reading and writing them, whole or in parts, as dense row-major arrays, wherever and however they are
 * stored. */
#ifndef DP_IO_H
#define DP_IO_H
#include "dp_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DP_IO_RANK 8

typedef enum dp_dtype {
  DP_INT8, DP_UINT8, DP_INT16, DP_UINT16, DP_INT32, DP_UINT32, DP_INT64, DP_UINT64, DP_FLOAT32, DP_BOOL
} dp_dtype;

/* name: of the tensor in the model. bytes: of the dense array. dtype: a dp_dtype. elem: bytes of an element.
 * level: 2 or 3, where it is stored. offset: of its first element in the storage, in bytes.
 * ext, stride: `rank` dimensions from the outermost, strides in elements; dimensions that lie densely are merged into one. */
typedef struct dp_io {
  const char *name;
  uint32_t bytes;
  uint32_t offset;
  uint8_t dtype, elem, level, rank;
  int32_t ext[DP_IO_RANK];
  int32_t stride[DP_IO_RANK];
} dp_io;

/* A part of a tensor is `bytes` of its dense array, from the byte `offset` on; it may begin and end within an element. */

/* Whether the tensor has that part; every tensor has parts of 0 bytes from 0 up to its end. */
int dp_io_within(const dp_io *tensor, uint32_t offset, uint32_t bytes);

/* Calls visit(user, place, bytes) for the pieces of the part that lie densely, in the order of the dense array. address: of the tensor's
 * storage; place: of the piece, at the tensor's level. */
typedef void (*dp_io_visit)(void *user, uintptr_t place, uint32_t bytes);
void dp_io_each(const dp_io *tensor, uintptr_t address, uint32_t offset, uint32_t bytes, dp_io_visit visit, void *user);

/* Copies the part of the tensor, whose storage is at `address`, to `data`. Nothing is written behind it. */
void dp_io_get(const dp_io *tensor, uintptr_t address, uint32_t offset, void *data, uint32_t bytes);
/* Copies `data` to the part of the tensor. */
void dp_io_set(const dp_io *tensor, uintptr_t address, uint32_t offset, const void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
