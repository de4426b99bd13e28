/* Stand-in: the board's default devices. */
#ifndef MOCK_BSP_BSP_H
#define MOCK_BSP_BSP_H
#include "bsp/flash.h"
#include "bsp/ram.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_default_ram_conf {
  struct pi_ram_conf ram;
};
struct pi_default_flash_conf {
  struct pi_flash_conf flash;
};

void pi_default_ram_conf_init(struct pi_default_ram_conf *conf);
void pi_default_flash_conf_init(struct pi_default_flash_conf *conf);

#ifdef __cplusplus
}
#endif
#endif
