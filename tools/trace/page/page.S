/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the page as they are, in the command: what they are is said in README.md beside this file. */
    .section .note.GNU-stack, "", %progbits
    .section .rodata, "a"

    .macro file name, path
    .globl \name, \name\()_end
    .hidden \name, \name\()_end
\name:
    .incbin "\path"
\name\()_end:
    .endm

    file lowtide_page_html, "page.html"
    file lowtide_page_script, "page.js"
    file lowtide_page_library, "echarts.min.js"
