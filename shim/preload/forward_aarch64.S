/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported names, aarch64. What the parts are for is said in forward_x86_64.S.
 *
 * Targets are read with acquire order: a hook must see the real addresses that were stored before its own was published.
 */
        .text

/* Calls lowtide_bind(w17) and jumps to its answer. x16 and x17 are free at any call; x8 and x18 are kept. */
        .p2align 4
        .type   bind_common, %function
bind_common:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset x29, -224
        .cfi_offset x30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        stp     x8, x18, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      lowtide_bind
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x2, x3, [sp, #32]
        ldp     x4, x5, [sp, #48]
        ldp     x6, x7, [sp, #64]
        ldp     x8, x18, [sp, #80]
        ldp     q0, q1, [sp, #96]
        ldp     q2, q3, [sp, #128]
        ldp     q4, q5, [sp, #160]
        ldp     q6, q7, [sp, #192]
        ldp     x29, x30, [sp], #224
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   bind_common, . - bind_common

        .altmacro
        .set    number, 0

        .macro  vendor_numbered name, n
        .text
        .p2align 4
        .globl  \name
        .type   \name, %function
\name:
.Lstub_\n:
        .cfi_startproc
        hint    #34
        adrp    x16, lowtide_targets + 8 * \n
        add     x16, x16, :lo12:lowtide_targets + 8 * \n
        ldar    x16, [x16]
        br      x16
        .cfi_endproc
        .size   \name, . - \name
.Lthunk_\n:
        .cfi_startproc
        hint    #34
        mov     w17, #\n
        b       bind_common
        .cfi_endproc
        .data
        .quad   .Lthunk_\n
        .section .data.rel.ro, "aw", %progbits
        .quad   .Lstub_\n
        .endm

        .macro  vendor name
        vendor_numbered \name, %number
        .set    number, number + 1
        .endm

        .data
        .p2align 6
        .globl  lowtide_targets
        .hidden lowtide_targets
        .type   lowtide_targets, %object
lowtide_targets:
        .section .data.rel.ro, "aw", %progbits
        .p2align 3
        .globl  lowtide_stubs
        .hidden lowtide_stubs
        .type   lowtide_stubs, %object
lowtide_stubs:

#define HOOK(name, class, typedef) vendor name;
#define HIP(name, class) vendor name;
#include "shim/hooks.def"

        .data
        .size   lowtide_targets, . - lowtide_targets
        .section .data.rel.ro, "aw", %progbits
        .size   lowtide_stubs, . - lowtide_stubs

/* The decider answers {w0: whether it answers, x1: the answer}. */
        .macro  look_up name
        .text
        .p2align 4
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset x29, -48
        .cfi_offset x30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        bl      lowtide_decide_\name
        mov     w16, w0
        mov     x17, x1
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        cbnz    w16, 1f
        adrp    x16, lowtide_real_\name
        ldr     x16, [x16, :lo12:lowtide_real_\name]
        br      x16
1:      mov     x0, x17
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm

        look_up dlsym
        look_up dlvsym

/* The decider answers the flags to go on with. */
        .text
        .p2align 4
        .globl  dlopen
        .type   dlopen, %function
dlopen:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset x29, -32
        .cfi_offset x30, -24
        mov     x29, sp
        str     x0, [sp, #16]
        bl      lowtide_decide_dlopen
        mov     w1, w0
        ldr     x0, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        adrp    x16, lowtide_real_dlopen
        ldr     x16, [x16, :lo12:lowtide_real_dlopen]
        br      x16
        .cfi_endproc
        .size   dlopen, . - dlopen

        .section .note.GNU-stack, "", %progbits
