/* The stand-in of the vendor's SDK: external RAM, flash with a read-only file system (the folder MOCK_READFS), file system of the host.
 *
 * Requests to the RAM are queued: a wait carries out all up to the one waited for, in order. Reads overwrite up to 3 bytes past every row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsp/bsp.h"
#include "bsp/flash/mram.h"
#include "bsp/fs.h"
#include "bsp/fs/hostfs.h"
#include "bsp/fs/readfs.h"
#include "mock.h"

#define RAM_BYTES 33554432u
#define GARBAGE 0x5A
#define ROUNDED 0xC3

static int opened[8]; /* by kind */

static void open_kind(struct pi_device *device, mock_kind kind) {
  mock_on(MOCK_FC, "opening a device");
  mock_check(mock_kind_of(device) == kind && !opened[kind], "a device is opened as what it is not, or twice");
  opened[kind] = 1;
}

static void close_kind(struct pi_device *device, mock_kind kind) {
  mock_on(MOCK_FC, "closing a device");
  mock_check(mock_kind_of(device) == kind && opened[kind], "a device is closed that is not open");
  opened[kind] = 0;
}

/* ---- RAM */

static uint8_t *ram;
static mock_heap ram_heap = {"RAM", 0x1000u, RAM_BYTES - 0x1000u, 0, {{0, 0}}};
static int from_zero;
static pi_cl_ram_req_t *first, *last;

void pi_default_ram_conf_init(struct pi_default_ram_conf *conf) { mock_register(conf, MOCK_RAM); }

int32_t pi_ram_open(struct pi_device *device) {
  open_kind(device, MOCK_RAM);
  ram = (uint8_t *)malloc(RAM_BYTES);
  mock_check(ram != NULL, "no memory");
  memset(ram, GARBAGE, RAM_BYTES);
  return 0;
}

void pi_ram_close(struct pi_device *device) {
  close_kind(device, MOCK_RAM);
  free(ram);
}

/* The first allocation gets the address 0, which is one like others. */
int pi_ram_alloc(struct pi_device *device, uint32_t *addr, uint32_t size) {
  mock_on(MOCK_FC, "pi_ram_alloc");
  mock_check(mock_kind_of(device) == MOCK_RAM && opened[MOCK_RAM], "a RAM that is not open");
  mock_check(size > 0, "an allocation of nothing");
  if (size <= 0x1000u && !from_zero) {
    from_zero = (int)size;
    *addr = 0;
    return 0;
  }
  const uintptr_t at = mock_take(&ram_heap, size, 4);
  *addr = (uint32_t)at;
  return at ? 0 : -1;
}

int pi_ram_free(struct pi_device *device, uint32_t addr, uint32_t size) {
  mock_check(mock_kind_of(device) == MOCK_RAM && opened[MOCK_RAM], "a RAM that is not open");
  if (addr == 0) {
    mock_check((int)size == from_zero, "free of something else than was allocated");
    from_zero = 0;
  } else {
    mock_give(&ram_heap, addr, size);
  }
  return 0;
}

static void check_ram(const struct pi_device *device, uint32_t at, uint64_t bytes) {
  mock_check(mock_kind_of(device) == MOCK_RAM && opened[MOCK_RAM], "a RAM that is not open");
  mock_check(bytes > 0 && at + bytes <= RAM_BYTES, "a transfer beyond the RAM");
}

void pi_ram_read(struct pi_device *device, uint32_t pi_ram_addr, void *data, uint32_t size) {
  mock_on(MOCK_FC, "pi_ram_read");
  check_ram(device, pi_ram_addr, size);
  memcpy(data, ram + pi_ram_addr, size);
  memset((uint8_t *)data + size, ROUNDED, (4u - size % 4u) % 4u);
}

void pi_ram_write(struct pi_device *device, uint32_t pi_ram_addr, void *data, uint32_t size) {
  mock_on(MOCK_FC, "pi_ram_write");
  check_ram(device, pi_ram_addr, size);
  memcpy(ram + pi_ram_addr, data, size);
}

void pi_cl_ram_copy(struct pi_device *device, uint32_t pi_ram_addr, void *addr, uint32_t size, int ext2loc, pi_cl_ram_req_t *req) {
  pi_cl_ram_copy_2d(device, pi_ram_addr, addr, size, size, size, ext2loc, req);
}

void pi_cl_ram_copy_2d(struct pi_device *device, uint32_t pi_ram_addr, void *addr, uint32_t size, uint32_t stride, uint32_t length, int ext2loc,
                       pi_cl_ram_req_t *req) {
  mock_on(MOCK_CONTROLLER, "pi_cl_ram_copy");
  mock_check(req->mock_state == 0, "a request whose structure is in use");
  mock_check(length > 0 && size % length == 0, "rows that are not whole");
  check_ram(device, pi_ram_addr, (uint64_t)(size / length - 1u) * stride + length);
  req->device = device;
  req->addr = addr;
  req->pi_ram_addr = pi_ram_addr;
  req->size = size;
  req->stride = stride;
  req->length = length;
  req->ext2loc = ext2loc;
  req->mock_state = 1;
  req->next = NULL;
  if (last)
    last->next = req;
  else
    first = req;
  last = req;
}

static void carry_out(const pi_cl_ram_req_t *r) {
  for (uint32_t row = 0; row < r->size / r->length; row++) {
    uint8_t *near_side = (uint8_t *)r->addr + row * r->length, *far_side = ram + r->pi_ram_addr + row * r->stride;
    mock_rows(near_side, far_side, r->length, r->length, r->length, r->ext2loc);
    if (r->ext2loc) memset(near_side + r->length, ROUNDED, (4u - r->length % 4u) % 4u);
  }
}

void pi_cl_ram_copy_wait(pi_cl_ram_req_t *req) {
  mock_on(MOCK_CONTROLLER, "pi_cl_ram_copy_wait");
  mock_check(req->mock_state != 0, "a wait for a request that was not made");
  while (req->mock_state == 1) {
    pi_cl_ram_req_t *r = first;
    carry_out(r);
    r->mock_state = 2; /* done, and not yet waited for */
    first = r->next;
    if (!first) last = NULL;
  }
  req->mock_state = 0;
}

/* ---- flash */

void pi_default_flash_conf_init(struct pi_default_flash_conf *conf) { mock_register(conf, MOCK_FLASH); }
void pi_mram_conf_init(struct pi_mram_conf *conf) { mock_register(conf, MOCK_FLASH); }

int pi_flash_open(struct pi_device *device) {
  open_kind(device, MOCK_FLASH);
  return 0;
}

void pi_flash_close(struct pi_device *device) {
  mock_check(!opened[MOCK_READFS], "a flash is closed under its file system");
  close_kind(device, MOCK_FLASH);
}

/* ---- file systems */

static int files_open;

void pi_readfs_conf_init(struct pi_readfs_conf *conf) {
  memset(conf, 0, sizeof *conf);
  mock_register(conf, MOCK_READFS);
}

void pi_hostfs_conf_init(struct pi_hostfs_conf *conf) {
  memset(conf, 0, sizeof *conf);
  mock_register(conf, MOCK_HOSTFS);
}

int32_t pi_fs_mount(struct pi_device *device) {
  const mock_kind kind = mock_kind_of(device);
  mock_check(kind == MOCK_READFS || kind == MOCK_HOSTFS, "a file system that is none");
  if (kind == MOCK_READFS) {
    const struct pi_readfs_conf *conf = (const struct pi_readfs_conf *)device->config;
    mock_check(conf->fs.flash && mock_kind_of(conf->fs.flash) == MOCK_FLASH && opened[MOCK_FLASH], "a file system without its flash");
    if (!getenv("MOCK_READFS")) return -1;
  }
  open_kind(device, kind);
  return 0;
}

void pi_fs_unmount(struct pi_device *device) { close_kind(device, mock_kind_of(device)); }

pi_fs_file_t *pi_fs_open(struct pi_device *device, const char *file, int flags) {
  char path[4096];
  const mock_kind kind = mock_kind_of(device);
  mock_on(MOCK_FC, "pi_fs_open");
  mock_check(opened[kind], "a file system that is not mounted");
  mock_check((flags == PI_FS_FLAGS_READ) == (kind == MOCK_READFS), "a file is opened for what it is not");
  if (kind == MOCK_READFS)
    snprintf(path, sizeof path, "%s/%s", getenv("MOCK_READFS"), file);
  else
    snprintf(path, sizeof path, "%s", file);
  FILE *stream = fopen(path, flags == PI_FS_FLAGS_READ ? "rb" : flags == PI_FS_FLAGS_WRITE ? "wb" : "ab");
  if (!stream) return NULL;
  pi_fs_file_t *made = (pi_fs_file_t *)calloc(1, sizeof *made);
  mock_check(made != NULL && fseek(stream, 0, SEEK_END) == 0, "no file");
  made->fs = device;
  made->data = stream;
  made->size = (unsigned)ftell(stream);
  if (flags == PI_FS_FLAGS_READ) rewind(stream);
  files_open++;
  return made;
}

void pi_fs_close(pi_fs_file_t *file) {
  fclose((FILE *)file->data);
  free(file);
  files_open--;
}

int32_t pi_fs_seek(pi_fs_file_t *file, unsigned int offset) {
  mock_on(MOCK_FC, "pi_fs_seek");
  mock_check(offset <= file->size && offset % 4u == 0, "a place that a flash may not be read from");
  return fseek((FILE *)file->data, (long)offset, SEEK_SET);
}

int32_t pi_fs_read(pi_fs_file_t *file, void *buffer, uint32_t size) {
  mock_on(MOCK_FC, "pi_fs_read");
  const size_t got = fread(buffer, 1, size, (FILE *)file->data);
  memset((uint8_t *)buffer + got, ROUNDED, (4u - got % 4u) % 4u);
  return (int32_t)got;
}

int32_t pi_fs_write(pi_fs_file_t *file, void *buffer, uint32_t size) {
  mock_on(MOCK_FC, "pi_fs_write");
  return (int32_t)fwrite(buffer, 1, size, (FILE *)file->data);
}

void mock_devices_end(void) {
  mock_check(!first && files_open == 0 && !from_zero && ram_heap.blocks == 0, "a request, a file or RAM is left");
  for (int i = 0; i < 8; i++) mock_check(!opened[i], "a device is left open");
}
