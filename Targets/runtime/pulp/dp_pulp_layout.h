/* Sizes that C, assembly and the linker script agree on. */
#ifndef DP_PULP_LAYOUT_H
#define DP_PULP_LAYOUT_H

#define DP_WORKERS 8
#define DP_CONTROLLER 8

/* Stacks in L1, in bytes. */
#define DP_WORKER_STACK 704
#define DP_CONTROLLER_STACK 2816

/* Stack of the fabric controller, in L2. */
#define DP_FC_STACK 8192

/* What platform files reserve in L1 for all of this. */
#define DP_L1_RESERVED 9072

#ifndef DP_L1_BYTES
#define DP_L1_BYTES 0x10000
#endif
#ifndef DP_L3_BYTES
#define DP_L3_BYTES 0x800000
#endif

#endif
