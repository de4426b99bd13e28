/* Files that a program leaves for whoever runs it on a simulator. */
#ifndef DP_FILES_H
#define DP_FILES_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `bytes` of data to a new file in the folder where the simulator runs. Returns 0, or -1 if that fails or there are no files. */
int dp_write_file(const char *name, const void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
