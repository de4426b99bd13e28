/* Reading and writing whole tensors (dp_io.h), for the caller of a network. Shared by all runtimes. */
#include "dp_io.h"

#include <string.h>

static void dp_io_run(const dp_io *tensor, uintptr_t place, uint8_t *data, const uint8_t *from, uint32_t bytes) {
  if (tensor->level == 3) {
    if (data)
      dp_l3_read(data, (dp_l3)place, bytes);
    else
      dp_l3_write((dp_l3)place, from, bytes);
  } else if (data) {
    memcpy(data, (const void *)place, bytes);
  } else {
    memcpy((void *)place, from, bytes);
  }
}

/* Exactly one of `data` (to be filled) and `from` (to be stored) is given. */
static void dp_io_walk(const dp_io *tensor, uintptr_t address, uint8_t *data, const uint8_t *from) {
  if (tensor->bytes == 0) return;
  const int32_t inner = tensor->rank - 1;
  const int dense = tensor->rank == 0 || tensor->stride[inner] == 1;
  const int32_t outer = tensor->rank == 0 ? 0 : dense ? inner : tensor->rank;
  const uint32_t run = tensor->rank > 0 && dense ? (uint32_t)tensor->ext[inner] * tensor->elem : tensor->elem;
  int32_t index[DP_IO_RANK] = {0};
  for (uint32_t at = 0; at < tensor->bytes; at += run) {
    intptr_t place = (intptr_t)address + (intptr_t)tensor->offset;
    for (int32_t d = 0; d < outer; d++) place += (intptr_t)index[d] * tensor->stride[d] * tensor->elem;
    dp_io_run(tensor, (uintptr_t)place, data ? data + at : NULL, from ? from + at : NULL, run);
    for (int32_t d = outer - 1; d >= 0; d--) {
      if (++index[d] < tensor->ext[d]) break;
      index[d] = 0;
    }
  }
}

void dp_io_get(const dp_io *tensor, uintptr_t address, void *data) { dp_io_walk(tensor, address, (uint8_t *)data, NULL); }

void dp_io_set(const dp_io *tensor, uintptr_t address, const void *data) { dp_io_walk(tensor, address, NULL, (const uint8_t *)data); }
