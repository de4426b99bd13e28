/* Memory functions of the C library by words: those of the installed library go byte by byte, and the controller copies and clears a lot.
 * The cores allow misaligned accesses, so only lengths matter; the compiler is not told that a word here may be misaligned, because then it
 * would go byte by byte again. */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memset(void *to, int value, size_t bytes);

typedef uint32_t __attribute__((may_alias)) any_word;

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  uint8_t *t = (uint8_t *)to;
  const uint8_t *f = (const uint8_t *)from;
  for (; bytes >= 16; bytes -= 16, t += 16, f += 16) {
    const uint32_t a = ((const any_word *)f)[0], b = ((const any_word *)f)[1], c = ((const any_word *)f)[2], d = ((const any_word *)f)[3];
    ((any_word *)t)[0] = a;
    ((any_word *)t)[1] = b;
    ((any_word *)t)[2] = c;
    ((any_word *)t)[3] = d;
  }
  for (; bytes >= 4; bytes -= 4, t += 4, f += 4) *(any_word *)t = *(const any_word *)f;
  for (; bytes > 0; bytes--) *t++ = *f++;
  return to;
}

void *memset(void *to, int value, size_t bytes) {
  uint8_t *t = (uint8_t *)to;
  const uint32_t word = (uint8_t)value * 0x01010101u;
  for (; bytes >= 16; bytes -= 16, t += 16) ((any_word *)t)[0] = ((any_word *)t)[1] = ((any_word *)t)[2] = ((any_word *)t)[3] = word;
  for (; bytes >= 4; bytes -= 4, t += 4) *(any_word *)t = word;
  for (; bytes > 0; bytes--) *t++ = (uint8_t)value;
  return to;
}
