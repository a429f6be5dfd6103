/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' PTX inside the library, so that neither a build nor a run needs a compiler of the vendor's. */
    .section .rodata
    .global lowtide_page_digest_ptx
    .hidden lowtide_page_digest_ptx
    .type lowtide_page_digest_ptx, %object
lowtide_page_digest_ptx:
    .incbin LOWTIDE_PAGE_DIGEST_PTX
    .byte 0
    .size lowtide_page_digest_ptx, . - lowtide_page_digest_ptx
    .global lowtide_blank_ptx
    .hidden lowtide_blank_ptx
    .type lowtide_blank_ptx, %object
lowtide_blank_ptx:
    .incbin LOWTIDE_BLANK_PTX
    .byte 0
    .size lowtide_blank_ptx, . - lowtide_blank_ptx
    .section .note.GNU-stack, "", %progbits
