/* Stand-in: flash. */
#ifndef MOCK_BSP_FLASH_H
#define MOCK_BSP_FLASH_H
#include "pmsis.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_flash_conf {
  void *api;
};

int pi_flash_open(struct pi_device *device);
void pi_flash_close(struct pi_device *device);

#ifdef __cplusplus
}
#endif
#endif
