/* Files that a program leaves for whoever runs it on a simulator. */
#ifndef DP_FILES_H
#define DP_FILES_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `bytes` of data to a file in the folder where the simulator runs: the part of it from `offset` on. The part at 0 makes the file, in the
 * place of one that is there; the others are appended, so they come in order. Returns 0, or -1 if that fails or there are no files. */
int dp_write_part(const char *name, uint32_t offset, const void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
