/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 that has every symbol of the list: each answers 1000 plus its place there, so that a test sees whether a
 * call arrives at the function it named.
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

#define HOOK(name, class, typedef) answering name;
#include "shim/hooks.def"

        .section .note.GNU-stack, "", "progbits"
