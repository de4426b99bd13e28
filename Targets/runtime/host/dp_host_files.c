/* Files for whoever runs the program (dp_files.h). */
#include <stdio.h>

#include "dp_files.h"

int dp_write_file(const char *name, const void *data, uint32_t bytes) {
  FILE *file = fopen(name, "wb");
  if (!file) return -1;
  const int whole = fwrite(data, 1, bytes, file) == bytes;
  return fclose(file) == 0 && whole ? 0 : -1;
}
