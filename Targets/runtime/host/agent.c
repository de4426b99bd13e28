/* The DMA engine as ThreadSanitizer sees it: in its builds this file alone of the runtime is instrumented.
 *
 * The sanitizer keeps the last four accesses to every eight bytes. So each side is accessed by itself and in the longest pieces that its own
 * alignment allows: a copy by bytes would push its own first accesses out, and a core that then writes there would go unnoticed. */
#include "dp_host_internal.h"

/* Bytes of the next piece: a power of two up to 8, `at` is a multiple of it. */
static size_t piece_at(uintptr_t at, size_t left) {
  size_t piece = 8;
  while ((at & (piece - 1)) != 0 || piece > left) piece /= 2;
  return piece;
}

/* The value of a piece, unseen by the sanitizer. Little endian, as the host and the chip. */
#if defined(__GNUC__)
__attribute__((noinline, no_sanitize("thread")))
#endif
static uint64_t peek(const uint8_t *from, size_t piece) {
  uint64_t value = 0;
  for (size_t i = piece; i > 0; i--) value = value << 8 | from[i - 1];
  return value;
}

void dp_agent_read(const uint8_t *from, size_t bytes) {
  for (size_t piece; bytes > 0; from += piece, bytes -= piece) {
    piece = piece_at((uintptr_t)from, bytes);
    switch (piece) {
      case 8: (void)*(const volatile uint64_t *)(const void *)from; break;
      case 4: (void)*(const volatile uint32_t *)(const void *)from; break;
      case 2: (void)*(const volatile uint16_t *)(const void *)from; break;
      default: (void)*(const volatile uint8_t *)from;
    }
  }
}

void dp_agent_write(uint8_t *to, size_t bytes) {
  for (size_t piece; bytes > 0; to += piece, bytes -= piece) {
    piece = piece_at((uintptr_t)to, bytes);
    const uint64_t value = peek(to, piece);
    switch (piece) {
      case 8: *(volatile uint64_t *)(void *)to = value; break;
      case 4: *(volatile uint32_t *)(void *)to = (uint32_t)value; break;
      case 2: *(volatile uint16_t *)(void *)to = (uint16_t)value; break;
      default: *(volatile uint8_t *)to = (uint8_t)value;
    }
  }
}

#if defined(__GNUC__)
__attribute__((no_sanitize("thread")))
#endif
void dp_agent_move(uint8_t *to, const uint8_t *from, size_t bytes) {
  for (; bytes > 0; bytes--, to++, from++) *(volatile uint8_t *)to = *(const volatile uint8_t *)from;
}
