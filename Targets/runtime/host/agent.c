/* The DMA engine as ThreadSanitizer sees it: in its builds this file alone of the runtime is instrumented. */
#include "dp_host_internal.h"

void dp_agent_copy(uint8_t *to, const uint8_t *from, size_t bytes) {
  /* Words where both sides allow it: a sanitizer's cost is per access. */
  if ((((uintptr_t)to | (uintptr_t)from) & 7u) == 0)
    for (; bytes >= 8; bytes -= 8, to += 8, from += 8) *(volatile uint64_t *)(void *)to = *(const volatile uint64_t *)(const void *)from;
  for (; bytes > 0; bytes--, to++, from++) *(volatile uint8_t *)to = *(const volatile uint8_t *)from;
}
