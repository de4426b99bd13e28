/* Reset code. The fabric controller (mhartid 0x3E0) starts at the entry of the ELF file, cluster core i (mhartid i) at dp_cluster_start.
 *
 * Exceptions of every kind arrive at vector 0. The trap handler runs on a stack of its own, because the core's may be what is broken. */
#include "dp_pulp_layout.h"

  .section .vectors, "ax"
  .balign 256
  .option push
  .option norvc
vectors:
  .rept 32
  j trap
  .endr
  .option pop

  .section .text.start, "ax"
  .globl _start
  .type _start, @function
_start:
  la sp, __fc_stack
  la tp, __tls_start
  la t0, vectors
  csrw mtvec, t0
  la a0, __bss_start
  la a1, __bss_end
  call clear
  la a0, __l1_bss_start
  la a1, __l1_bss_end
  call clear
  call dp_pulp_main
1:
  wfi
  j 1b

clear: /* words from a0 up to a1 */
  bgeu a0, a1, 2f
1:
  sw zero, 0(a0)
  addi a0, a0, 4
  bltu a0, a1, 1b
2:
  ret

  .balign 256
  .globl dp_cluster_start
  .type dp_cluster_start, @function
dp_cluster_start:
  la tp, __tls_start
  la t0, vectors
  csrw mtvec, t0
  csrr a0, mhartid
  andi a0, a0, 31
  addi t0, a0, 1
  li t1, DP_WORKER_STACK
  mul t0, t0, t1
  la sp, __stacks
  add sp, sp, t0
  li t1, DP_WORKERS
  bne a0, t1, 1f
  la sp, __stacks_end /* the controller's is last, and larger */
1:
  call dp_pulp_core
1:
  wfi
  j 1b

trap:
  mv a2, sp
  mv a3, ra
  csrr a0, mhartid
  andi t0, a0, 31
  li t1, 0x20
  bltu a0, t1, 1f
  li t0, DP_WORKERS + 1
1:
  addi t0, t0, 1
  slli t0, t0, 8
  la sp, dp_pulp_trap_stacks
  add sp, sp, t0
  csrr a0, mcause
  csrr a1, mepc
  call dp_pulp_trap
1:
  j 1b
