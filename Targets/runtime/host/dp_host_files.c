/* Files for whoever runs the program (dp_files.h). */
#include <stdio.h>

#include "dp_files.h"

int dp_write_part(const char *name, uint32_t offset, const void *data, uint32_t bytes) {
  FILE *file = fopen(name, offset ? "ab" : "wb");
  if (!file) return -1;
  const int follows = fseek(file, 0, SEEK_END) == 0 && ftell(file) == (long)offset;
  const int whole = follows && (bytes == 0 || fwrite(data, 1, bytes, file) == bytes);
  return fclose(file) == 0 && whole ? 0 : -1;
}
