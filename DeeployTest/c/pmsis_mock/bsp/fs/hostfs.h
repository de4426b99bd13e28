/* Stand-in: the file system of the host. */
#ifndef MOCK_BSP_FS_HOSTFS_H
#define MOCK_BSP_FS_HOSTFS_H
#include "bsp/fs.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_hostfs_conf {
  struct pi_fs_conf fs;
};

void pi_hostfs_conf_init(struct pi_hostfs_conf *conf);

#ifdef __cplusplus
}
#endif
#endif
