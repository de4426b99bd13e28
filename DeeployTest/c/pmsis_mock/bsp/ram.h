/* Stand-in: external RAM. */
#ifndef MOCK_BSP_RAM_H
#define MOCK_BSP_RAM_H
#include "pmsis.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pi_ram_conf {
  void *api;
};

typedef struct pi_cl_ram_req_s {
  struct pi_device *device;
  void *addr;
  uint32_t pi_ram_addr, size, stride, length;
  int ext2loc;
  uint32_t mock_state;
  struct pi_cl_ram_req_s *next;
} pi_cl_ram_req_t;

int32_t pi_ram_open(struct pi_device *device);
void pi_ram_close(struct pi_device *device);
int pi_ram_alloc(struct pi_device *device, uint32_t *addr, uint32_t size);
int pi_ram_free(struct pi_device *device, uint32_t addr, uint32_t size);
void pi_ram_read(struct pi_device *device, uint32_t pi_ram_addr, void *data, uint32_t size);
void pi_ram_write(struct pi_device *device, uint32_t pi_ram_addr, void *data, uint32_t size);
void pi_cl_ram_copy(struct pi_device *device, uint32_t pi_ram_addr, void *addr, uint32_t size, int ext2loc, pi_cl_ram_req_t *req);
void pi_cl_ram_copy_2d(struct pi_device *device, uint32_t pi_ram_addr, void *addr, uint32_t size, uint32_t stride, uint32_t length, int ext2loc,
                       pi_cl_ram_req_t *req);
void pi_cl_ram_copy_wait(pi_cl_ram_req_t *req);

#ifdef __cplusplus
}
#endif
#endif
