/* The contract between generated code and kernels.
 *
 * A kernel is   void k(const dp_args *args, const dp_team *team);
 * It is called once on every core of the team. It never forks and never touches DMA; it uses only the barrier of its team, works for
 * any number of cores and for any extents (also 0), and assumes no multiple of anything.
 *
 * The iteration space of the call is n[0..]: the extents of this tile, in the axis order that the kernel documents; lo[] are the first
 * indices of the tile in the whole iteration space. Operands come in the order that the kernel documents.
 */
#ifndef DP_KERNEL_H
#define DP_KERNEL_H
#include <stddef.h>
#include <stdint.h>

#define DP_AXES 10
#define DP_RANK 7
#define DP_OPERANDS 8

typedef struct dp_team {
  uint8_t first;  /* first core of the team */
  uint8_t cores;  /* number of cores, at least 1 */
  uint8_t barrier; /* which hardware barrier the team uses */
} dp_team;

/* Rank of the calling core in its team, 0 <= rank < cores. */
int dp_team_rank(const dp_team *team);
/* Waits for all cores of the team; memory written before it is seen by all after it. */
void dp_team_barrier(const dp_team *team);

/* One operand's tile in L1.
 * ext[d]: elements present in dimension d (padding is not present).
 * str[d]: distance of neighbours in elements; 0 where the operand has one element for the whole dimension (broadcast, splat), so a kernel
 *         may index it like any other.
 * pad[d]: indices of the tile that lie before its first present element. Point p of the tile is at element p - pad[d] if that is
 *         inside [0, ext[d]), else it is padding.
 * ptr:    first present element; for an immediate operand it points at `imm`. */
typedef struct dp_tile {
  void *ptr;
  int32_t ext[DP_RANK];
  int32_t str[DP_RANK];
  int32_t pad[DP_RANK];
  union {
    int64_t i64;
    int32_t i32;
    int8_t i8;
    float f32;
    uint8_t bytes[8];
  } imm;
} dp_tile;

/* first, last: whether this call is the first and the last of a split reduction (both 1 if it is not split).
 * acc:     accumulators kept between the calls of a split reduction, one per element of the first written tile and laid out like it;
 *          NULL if the reduction is not split. A kernel starts from its initial value if `first`, else from acc; it writes its result if
 *          `last`, else acc.
 * scratch: L1 bytes as the kernel's scratch rule asks, 8-byte aligned; shared by the team. */
typedef struct dp_args {
  const void *cst; /* the kernel's constant struct, or NULL */
  int32_t n[DP_AXES];
  int32_t lo[DP_AXES];
  dp_tile t[DP_OPERANDS];
  void *acc;
  void *scratch;
  uint8_t first, last;
} dp_args;

typedef void (*dp_kernel)(const dp_args *args, const dp_team *team);

/* The part [*begin, *end) of `total` items that the calling core does: contiguous, sizes differ by at most one. */
static inline void dp_share(const dp_team *team, int32_t total, int32_t *begin, int32_t *end) {
  const int32_t rank = dp_team_rank(team), cores = team->cores, each = total / cores, rest = total % cores;
  *begin = rank * each + (rank < rest ? rank : rest);
  *end = *begin + each + (rank < rest ? 1 : 0);
}

static inline int32_t dp_min(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t dp_max(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t dp_clamp(int32_t v, int32_t lo, int32_t hi) { return v < lo ? lo : v > hi ? hi : v; }

#endif
