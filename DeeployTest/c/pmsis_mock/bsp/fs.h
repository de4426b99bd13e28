/* Stand-in: file systems. */
#ifndef MOCK_BSP_FS_H
#define MOCK_BSP_FS_H
#include "pmsis.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { PI_FS_FLAGS_READ = 0, PI_FS_FLAGS_WRITE = 1, PI_FS_FLAGS_APPEND = 2 } pi_fs_flags_e;

struct pi_fs_conf {
  int type;
  struct pi_device *flash;
  char *partition_name;
};

typedef struct pi_fs_file_s {
  struct pi_device *fs;
  void *data;
  unsigned int size;
} pi_fs_file_t;

int32_t pi_fs_mount(struct pi_device *device);
void pi_fs_unmount(struct pi_device *device);
pi_fs_file_t *pi_fs_open(struct pi_device *device, const char *file, int flags);
void pi_fs_close(pi_fs_file_t *file);
int32_t pi_fs_seek(pi_fs_file_t *file, unsigned int offset);
int32_t pi_fs_read(pi_fs_file_t *file, void *buffer, uint32_t size);
int32_t pi_fs_write(pi_fs_file_t *file, void *buffer, uint32_t size);

#ifdef __cplusplus
}
#endif
#endif
