/* dp_io.c over memory of its own: an L3 at 0x40000000 whose transfers must lie in what the test has given it. */
#include "dp_io.h"

#include <string.h>

#define L3 0x40000000u

static uint8_t *memory;
static uint32_t size, outside;

void set_memory(uint8_t *bytes, uint32_t count);
uint32_t was_outside(void);

void set_memory(uint8_t *bytes, uint32_t count) {
  memory = bytes;
  size = count;
  outside = 0;
}

uint32_t was_outside(void) { return outside; }

static int inside(dp_l3 l3, uint32_t bytes) {
  const int good = l3 >= L3 && l3 - L3 <= size && bytes <= size - (uint32_t)(l3 - L3);
  outside += !good;
  return good;
}

void dp_l3_read(void *data, dp_l3 l3, uint32_t bytes) {
  if (inside(l3, bytes)) memcpy(data, memory + (l3 - L3), bytes);
}

void dp_l3_write(dp_l3 l3, const void *data, uint32_t bytes) {
  if (inside(l3, bytes)) memcpy(memory + (l3 - L3), data, bytes);
}
