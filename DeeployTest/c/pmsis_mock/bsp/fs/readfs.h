/* Stand-in: the read-only file system in a flash. */
#ifndef MOCK_BSP_FS_READFS_H
#define MOCK_BSP_FS_READFS_H
#include "bsp/fs.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_readfs_conf {
  struct pi_fs_conf fs;
};

void pi_readfs_conf_init(struct pi_readfs_conf *conf);

#ifdef __cplusplus
}
#endif
#endif
