/* What the files of the stand-in share. Every call is checked for where it may be made; a failed check ends the program with MOCK_FAILED. */
#ifndef MOCK_H
#define MOCK_H
#include <stddef.h>
#include <stdint.h>

#define MOCK_FAILED 99

enum { MOCK_CONTROLLER = 8, MOCK_FC = 32 };

/* Kinds of devices; a configuration is registered with its kind by its init function. */
typedef enum mock_kind { MOCK_NONE, MOCK_CLUSTER, MOCK_RAM, MOCK_FLASH, MOCK_READFS, MOCK_HOSTFS } mock_kind;

void mock_check(int good, const char *what);
/* The calling core: 0 to 7, MOCK_CONTROLLER or MOCK_FC. */
void mock_on(uint32_t core, const char *call);
void mock_register(void *conf, mock_kind kind);
mock_kind mock_kind_of(const void *device);

/* First fit over `bytes` at `base`; aligned to 4 at least. */
typedef struct mock_heap {
  const char *name;
  uintptr_t base;
  uint32_t bytes, blocks;
  struct {
    uintptr_t at;
    uint32_t bytes;
  } block[128];
} mock_heap;

/* 0 if there is no room. */
uintptr_t mock_take(mock_heap *heap, uint32_t bytes, uint32_t align);
void mock_give(mock_heap *heap, uintptr_t at, uint32_t bytes);

/* Fills rows before they arrive, moves them when somebody waits. */
void mock_rows(uint8_t *flat, uint8_t *strided, uint32_t bytes, uint32_t stride, uint32_t length, int to_flat);

/* At the end of the program: nothing in flight, open or allocated. */
void mock_devices_end(void);

#endif
