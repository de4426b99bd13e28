/* Memory of the three levels, and files: those that a project brings lie in the flash's read-only file system, those that it leaves go to the
 * host file system (semihosting), into the folder DP_FOLDER. All on the fabric controller. */
#include <stdio.h>
#include <string.h>

#include "dp_files.h"
#include "dp_gap9.h"

#ifdef DP_FLASH_MRAM
#include "bsp/flash/mram.h"
typedef struct pi_mram_conf dp_flash_conf;
#define dp_flash_conf_init(conf) pi_mram_conf_init(conf)
#else
typedef struct pi_default_flash_conf dp_flash_conf;
#define dp_flash_conf_init(conf) pi_default_flash_conf_init(conf)
#endif

#ifndef DP_FOLDER
#define DP_FOLDER "."
#endif

#define BOUNCE 4096u
#define PATH_BYTES 512

PI_L2 struct pi_device dp_gap9_ram_device;
PI_L2 dp_gap9_loads dp_gap9_loaded;

static PI_L2 DP_ALIGN(8) uint8_t bounce[BOUNCE];
static PI_L2 struct pi_device flash, files, host;
static PI_L2 struct pi_default_ram_conf ram_conf;
static PI_L2 dp_flash_conf flash_conf;
static PI_L2 struct pi_readfs_conf files_conf;
static PI_L2 struct pi_hostfs_conf host_conf;
static PI_L2 uint8_t ram_open, flash_open, files_open, host_open;

/* ---- devices -------------------------------------------------------------------------------------------------------------------------- */

struct pi_device *dp_gap9_ram(void) {
  if (!ram_open) {
    pi_default_ram_conf_init(&ram_conf);
    pi_open_from_conf(&dp_gap9_ram_device, &ram_conf);
    if (pi_ram_open(&dp_gap9_ram_device)) {
      printf("SDKRT: the external RAM cannot be opened\n");
      return NULL;
    }
    ram_open = 1;
  }
  return &dp_gap9_ram_device;
}

static int open_files(void) {
  if (!flash_open) {
    dp_flash_conf_init(&flash_conf);
    pi_open_from_conf(&flash, &flash_conf);
    if (pi_flash_open(&flash)) {
      printf("SDKRT: the flash cannot be opened\n");
      return 0;
    }
    flash_open = 1;
  }
  if (!files_open) {
    pi_readfs_conf_init(&files_conf);
    files_conf.fs.flash = &flash;
#ifdef DP_PARTITION
    static char partition[] = DP_PARTITION;
    files_conf.fs.partition_name = partition;
#endif
    pi_open_from_conf(&files, &files_conf);
    if (pi_fs_mount(&files)) {
      printf("SDKRT: the flash has no read-only file system\n");
      return 0;
    }
    files_open = 1;
  }
  return 1;
}

void dp_gap9_close_memory(void) {
  if (host_open) pi_fs_unmount(&host);
  if (files_open) pi_fs_unmount(&files);
  if (flash_open) pi_flash_close(&flash);
  if (ram_open) pi_ram_close(&dp_gap9_ram_device);
  host_open = files_open = flash_open = ram_open = 0;
}

/* ---- allocation ----------------------------------------------------------------------------------------------------------------------- */

/* Whole words, and a piece of its own also for nothing. */
static uint32_t rounded(uint32_t bytes) { return bytes ? (bytes + 7u) & ~7u : 8u; }

void *dp_arena_l1(uint32_t bytes) { return pi_cl_l1_malloc_align(dp_gap9_cluster(), (int)rounded(bytes), 8); }
void dp_arena_l1_free(void *address, uint32_t bytes) { pi_cl_l1_free(dp_gap9_cluster(), address, (int)rounded(bytes)); }
void *dp_arena_l2(uint32_t bytes) { return pi_l2_malloc_align((int)rounded(bytes), 8); }
void dp_arena_l2_free(void *address, uint32_t bytes) { pi_l2_free(address, (int)rounded(bytes)); }

dp_l3 dp_arena_l3(uint32_t bytes) {
  struct pi_device *ram = dp_gap9_ram();
  uint32_t address = 0;
  if (!ram || pi_ram_alloc(ram, &address, rounded(bytes))) return 0;
  return (dp_l3)(DP_L3_BASE + address);
}

void dp_arena_l3_free(dp_l3 address, uint32_t bytes) {
  pi_ram_free(&dp_gap9_ram_device, (uint32_t)address - DP_L3_BASE, rounded(bytes));
}

dp_l3 cl_ram_malloc(uint32_t bytes) {
  const dp_l3 address = dp_arena_l3(bytes);
  dp_gap9_loaded.allocations += address != 0;
  dp_gap9_loaded.bytes += address ? bytes : 0;
  return address;
}

void cl_ram_free(dp_l3 address, uint32_t bytes) { dp_arena_l3_free(address, bytes); }

/* ---- files ---------------------------------------------------------------------------------------------------------------------------- */

/* Reads `bytes` from `offset` on of a file that has `total`, to L2 or, if `l2` is NULL, to the RAM. By way of a buffer whose alignment and room
 * suit any driver, and from multiples of 4 on. */
static int load(const char *name, uint8_t *l2, uint32_t ram_address, uint32_t total, uint32_t offset, uint32_t bytes) {
  if (offset > total || bytes > total - offset || !open_files()) return -1;
  pi_fs_file_t *file = pi_fs_open(&files, name, PI_FS_FLAGS_READ);
  if (!file) return -1;
  uint32_t skip = offset & 3u, part;
  int good = file->size == total && (offset == 0 || pi_fs_seek(file, offset - skip) == 0);
  for (uint32_t at = 0; good && at < bytes; at += part, skip = 0) {
    part = bytes - at < BOUNCE - skip ? bytes - at : BOUNCE - skip;
    good = pi_fs_read(file, bounce, skip + part) == (int32_t)(skip + part);
    if (!good) break;
    if (l2)
      memcpy(l2 + at, bounce + skip, part);
    else
      pi_ram_write(&dp_gap9_ram_device, ram_address + at, bounce + skip, part);
  }
  pi_fs_close(file);
  return good ? 0 : -1;
}

int load_file_to_ram(dp_l3 address, const char *name, uint32_t bytes) {
  if (load(name, NULL, (uint32_t)address - DP_L3_BASE, bytes, 0, bytes)) return -1;
  dp_gap9_loaded.files++;
  dp_gap9_loaded.file_bytes += bytes;
  return 0;
}

int dp_load_part_to_l2(void *address, const char *name, uint32_t total, uint32_t offset, uint32_t bytes) {
  if (load(name, (uint8_t *)address, 0, total, offset, bytes)) return -1;
  dp_gap9_loaded.l2_files += offset == 0;
  dp_gap9_loaded.l2_file_bytes += bytes;
  return 0;
}

int dp_write_part(const char *name, uint32_t offset, const void *data, uint32_t bytes) {
  static PI_L2 char path[PATH_BYTES];
  if (!host_open) {
    pi_hostfs_conf_init(&host_conf);
    pi_open_from_conf(&host, &host_conf);
    if (pi_fs_mount(&host)) return -1;
    host_open = 1;
  }
  const int length = snprintf(path, sizeof path, "%s/%s", DP_FOLDER, name);
  if (length < 0 || length >= PATH_BYTES) return -1;
  pi_fs_file_t *file = pi_fs_open(&host, path, offset ? PI_FS_FLAGS_APPEND : PI_FS_FLAGS_WRITE);
  if (!file) return -1;
  const int whole = bytes == 0 || pi_fs_write(file, (void *)(uintptr_t)data, bytes) == (int32_t)bytes;
  pi_fs_close(file);
  return whole ? 0 : -1;
}

/* ---- copies of the caller --------------------------------------------------------------------------------------------------------------- */

/* The last bytes go by way of the buffer, because a driver may round a read up. */
void dp_l3_read(void *data, dp_l3 l3, uint32_t bytes) {
  const uint32_t whole = bytes & ~3u, from = (uint32_t)l3 - DP_L3_BASE;
  if (whole) pi_ram_read(&dp_gap9_ram_device, from, data, whole);
  if (bytes == whole) return;
  pi_ram_read(&dp_gap9_ram_device, from + whole, bounce, bytes - whole);
  memcpy((uint8_t *)data + whole, bounce, bytes - whole);
}

void dp_l3_write(dp_l3 l3, const void *data, uint32_t bytes) {
  if (bytes) pi_ram_write(&dp_gap9_ram_device, (uint32_t)l3 - DP_L3_BASE, (void *)(uintptr_t)data, bytes);
}
