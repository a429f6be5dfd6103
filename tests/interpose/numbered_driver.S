/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1, or with NUMBERED_HIP a libamdhip64.so, that has every symbol of the list: each answers 1000 plus its
 * place there, so that a test sees whether a call arrives at the function it named.
 */
        .text
        .altmacro
        .set    number, 1000

        .macro  answer_number name, n
        .globl  \name
        .type   \name, "function"
\name:
#ifdef __x86_64__
        mov     $\n, %eax
#else
        mov     w0, #\n
#endif
        ret
        .size   \name, . - \name
        .endm

        .macro  answering name
        answer_number \name, %number
        .set    number, number + 1
        .endm

#ifdef NUMBERED_HIP
#define HOOK(name, class, typedef) .set number, number + 1;
#define HIP(name, class) answering name;
#else
#define HOOK(name, class, typedef) answering name;
#endif
#include "shim/hooks.def"

        .section .note.GNU-stack, "", "progbits"
