/* Stand-in: the flash inside the chip. */
#ifndef MOCK_BSP_FLASH_MRAM_H
#define MOCK_BSP_FLASH_MRAM_H
#include "bsp/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_mram_conf {
  struct pi_flash_conf flash;
};

void pi_mram_conf_init(struct pi_mram_conf *conf);

#ifdef __cplusplus
}
#endif
#endif
