/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported names, x86-64.
 *
 * A vendor symbol's export jumps through lowtide_targets[its number]. Until the driver is known that is a thunk which asks
 * lowtide_bind, with every argument register kept, and goes on to what it answers.
 *
 * dlsym, dlvsym and dlopen ask a decider and otherwise jump to the real function with the stack as they found it: the
 * loader looks at the return address to know who is asking (RTLD_NEXT, RUNPATH), and a frame of ours would change the answer.
 */
        .text

/* Calls lowtide_bind(%r11d) and jumps to its answer. */
        .p2align 4
        .type   bind_common, @function
bind_common:
        .cfi_startproc
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        mov     %rsp, %rbp
        .cfi_def_cfa_register %rbp
        sub     $192, %rsp
        mov     %rdi, 0(%rsp)
        mov     %rsi, 8(%rsp)
        mov     %rdx, 16(%rsp)
        mov     %rcx, 24(%rsp)
        mov     %r8, 32(%rsp)
        mov     %r9, 40(%rsp)
        mov     %r10, 48(%rsp)
        mov     %rax, 56(%rsp)
        movaps  %xmm0, 64(%rsp)
        movaps  %xmm1, 80(%rsp)
        movaps  %xmm2, 96(%rsp)
        movaps  %xmm3, 112(%rsp)
        movaps  %xmm4, 128(%rsp)
        movaps  %xmm5, 144(%rsp)
        movaps  %xmm6, 160(%rsp)
        movaps  %xmm7, 176(%rsp)
        mov     %r11d, %edi
        call    lowtide_bind
        mov     %rax, %r11
        mov     0(%rsp), %rdi
        mov     8(%rsp), %rsi
        mov     16(%rsp), %rdx
        mov     24(%rsp), %rcx
        mov     32(%rsp), %r8
        mov     40(%rsp), %r9
        mov     48(%rsp), %r10
        mov     56(%rsp), %rax
        movaps  64(%rsp), %xmm0
        movaps  80(%rsp), %xmm1
        movaps  96(%rsp), %xmm2
        movaps  112(%rsp), %xmm3
        movaps  128(%rsp), %xmm4
        movaps  144(%rsp), %xmm5
        movaps  160(%rsp), %xmm6
        movaps  176(%rsp), %xmm7
        leave
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc
        .size   bind_common, . - bind_common

        .altmacro
        .set    number, 0

/* One export: its stub, its thunk, and its places in the two tables, which are built section by section. */
        .macro  vendor_numbered name, n
        .text
        .p2align 4
        .globl  \name
        .type   \name, @function
\name:
.Lstub_\n:
        .cfi_startproc
        endbr64
        jmp     *lowtide_targets + 8 * \n(%rip)
        .cfi_endproc
        .size   \name, . - \name
.Lthunk_\n:
        .cfi_startproc
        endbr64
        mov     $\n, %r11d
        jmp     bind_common
        .cfi_endproc
        .data
        .quad   .Lthunk_\n
        .section .data.rel.ro, "aw", @progbits
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
        .type   lowtide_targets, @object
lowtide_targets:
        .section .data.rel.ro, "aw", @progbits
        .p2align 3
        .globl  lowtide_stubs
        .hidden lowtide_stubs
        .type   lowtide_stubs, @object
lowtide_stubs:

#define HOOK(name, class, typedef) vendor name;
#define HIP(name, class) vendor name;
#include "shim/hooks.def"

        .data
        .size   lowtide_targets, . - lowtide_targets
        .section .data.rel.ro, "aw", @progbits
        .size   lowtide_stubs, . - lowtide_stubs

/* The decider answers {%eax: whether it answers, %rdx: the answer}. */
        .macro  look_up name
        .text
        .p2align 4
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        push    %rsi
        .cfi_adjust_cfa_offset 8
        push    %rdx
        .cfi_adjust_cfa_offset 8
        call    lowtide_decide_\name
        mov     %rdx, %r10
        pop     %rdx
        .cfi_adjust_cfa_offset -8
        pop     %rsi
        .cfi_adjust_cfa_offset -8
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        test    %eax, %eax
        jne     1f
        jmp     *lowtide_real_\name(%rip)
1:      mov     %r10, %rax
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
        .type   dlopen, @function
dlopen:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        call    lowtide_decide_dlopen
        mov     %eax, %esi
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *lowtide_real_dlopen(%rip)
        .cfi_endproc
        .size   dlopen, . - dlopen

        .section .note.GNU-stack, "", @progbits
