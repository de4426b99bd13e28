/* Reading and writing tensors (dp_io.h), for the caller of a network. Shared by all runtimes. */
#include "dp_io.h"

#include <string.h>

int dp_io_within(const dp_io *tensor, uint32_t offset, uint32_t bytes) {
  return offset <= tensor->bytes && bytes <= tensor->bytes - offset;
}

void dp_io_each(const dp_io *tensor, uintptr_t address, uint32_t offset, uint32_t bytes, dp_io_visit visit, void *user) {
  if (bytes == 0) return;
  const int32_t inner = tensor->rank - 1;
  const int dense = tensor->rank == 0 || tensor->stride[inner] == 1;
  const int32_t outer = tensor->rank == 0 ? 0 : dense ? inner : tensor->rank;
  const uint32_t run = tensor->rank > 0 && dense ? (uint32_t)tensor->ext[inner] * tensor->elem : tensor->elem;
  int32_t index[DP_IO_RANK] = {0};
  uint32_t number = offset / run, skip = offset % run, now; /* the run where the part begins, and what is before it there */
  for (int32_t d = outer - 1; d >= 0; d--) {
    index[d] = (int32_t)(number % (uint32_t)tensor->ext[d]);
    number /= (uint32_t)tensor->ext[d];
  }
  for (uint32_t at = 0; at < bytes; at += now, skip = 0) {
    intptr_t place = (intptr_t)address + (intptr_t)tensor->offset + (intptr_t)skip;
    for (int32_t d = 0; d < outer; d++) place += (intptr_t)index[d] * tensor->stride[d] * tensor->elem;
    now = bytes - at < run - skip ? bytes - at : run - skip;
    visit(user, (uintptr_t)place, now);
    for (int32_t d = outer - 1; d >= 0; d--) {
      if (++index[d] < tensor->ext[d]) break;
      index[d] = 0;
    }
  }
}

/* The rest of the part, to be filled (data) or to be stored (from). */
typedef struct dp_io_rest {
  uint8_t *data;
  const uint8_t *from;
} dp_io_rest;

static void dp_io_get_l2(void *user, uintptr_t place, uint32_t bytes) {
  dp_io_rest *rest = (dp_io_rest *)user;
  memcpy(rest->data, (const void *)place, bytes);
  rest->data += bytes;
}

static void dp_io_get_l3(void *user, uintptr_t place, uint32_t bytes) {
  dp_io_rest *rest = (dp_io_rest *)user;
  dp_l3_read(rest->data, (dp_l3)place, bytes);
  rest->data += bytes;
}

static void dp_io_set_l2(void *user, uintptr_t place, uint32_t bytes) {
  dp_io_rest *rest = (dp_io_rest *)user;
  memcpy((void *)place, rest->from, bytes);
  rest->from += bytes;
}

static void dp_io_set_l3(void *user, uintptr_t place, uint32_t bytes) {
  dp_io_rest *rest = (dp_io_rest *)user;
  dp_l3_write((dp_l3)place, rest->from, bytes);
  rest->from += bytes;
}

void dp_io_get(const dp_io *tensor, uintptr_t address, uint32_t offset, void *data, uint32_t bytes) {
  dp_io_rest rest = {(uint8_t *)data, NULL};
  dp_io_each(tensor, address, offset, bytes, tensor->level == 3 ? dp_io_get_l3 : dp_io_get_l2, &rest);
}

void dp_io_set(const dp_io *tensor, uintptr_t address, uint32_t offset, const void *data, uint32_t bytes) {
  dp_io_rest rest = {NULL, (const uint8_t *)data};
  dp_io_each(tensor, address, offset, bytes, tensor->level == 3 ? dp_io_set_l3 : dp_io_set_l2, &rest);
}
