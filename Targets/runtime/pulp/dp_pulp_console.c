/* Standard output, files of the simulating machine, and the counters. */
#include <stdio.h>
#include <string.h>

#include "dp_files.h"
#include "dp_pulp.h"

void dp_pulp_put(char c) {
  const uint32_t hart = dp_hart();
  *(volatile uint8_t *)(uintptr_t)(SOC_STDOUT + ((hart >> 5) << 7) + ((hart & 15u) << 3)) = (uint8_t)c;
}

void dp_pulp_text(const char *text) {
  while (*text) dp_pulp_put(*text++);
}

void dp_pulp_hex(uint32_t value) {
  for (int shift = 28; shift >= 0; shift -= 4) dp_pulp_put("0123456789abcdef"[value >> shift & 15u]);
}

static int put_to_console(char c, FILE *file) {
  (void)file;
  dp_pulp_put(c);
  return (unsigned char)c;
}

static FILE console = FDEV_SETUP_STREAM(put_to_console, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdout = &console;
FILE *const stderr = &console;

/* ---- files: semihosting, which takes no simulated time ------------------------------------------------------------------------------- */

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE = 5 };

static int32_t semihost(int32_t operation, const void *arguments) {
  register int32_t a0 __asm__("a0") = operation;
  register const void *a1 __asm__("a1") = arguments;
  __asm__ volatile(
      ".option push\n.option norvc\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop" : "+r"(a0) : "r"(a1) : "memory");
  return a0;
}

int32_t dp_pulp_file_open(const char *name, int append) {
  const uint32_t open[3] = {(uint32_t)(uintptr_t)name, append ? 9u /* ab */ : 5u /* wb */, (uint32_t)strlen(name)};
  return semihost(SYS_OPEN, open);
}

int dp_pulp_file_write(int32_t file, const void *data, uint32_t bytes) {
  const uint32_t write[3] = {(uint32_t)file, (uint32_t)(uintptr_t)data, bytes};
  return bytes ? semihost(SYS_WRITE, write) : 0;
}

/* GVSoC takes the handle itself where the ARM specification has a block with it. */
int dp_pulp_file_close(int32_t file) { return semihost(SYS_CLOSE, (const void *)(intptr_t)file); }

int dp_write_part(const char *name, uint32_t offset, const void *data, uint32_t bytes) {
  const int32_t file = dp_pulp_file_open(name, offset != 0);
  if (file < 0) return -1;
  const int failed = dp_pulp_file_write(file, data, bytes);
  return dp_pulp_file_close(file) != 0 || failed ? -1 : 0;
}
