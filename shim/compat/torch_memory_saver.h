/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that the Python package torch_memory_saver looks for in the library it opens (its versions up to
 * 0.0.10; each later set contains the earlier ones). liblowtide.so has them; liblowtide_preload.so has the same names
 * and hands the calls on.
 *
 * None of them ends the process or throws. Where a call fails, one line on stderr says why. Tags, flags and the
 * interesting region are those of the calling thread; margin, retention and the disk's folder are the process's.
 */
#ifndef LOWTIDE_SHIM_COMPAT_TORCH_MEMORY_SAVER_H
#define LOWTIDE_SHIM_COMPAT_TORCH_MEMORY_SAVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* For torch.cuda.CUDAPluggableAllocator. Null if there is no memory; a free is valid on every thread, at any time. */
void* tms_torch_malloc(ssize_t size, int device, void* stream);
void tms_torch_free(void* address, ssize_t size, int device, void* stream);

/* Allocations of this thread belong to the region of the current tag. */
void tms_set_interesting_region(bool interesting);
bool tms_get_interesting_region(void);
/* Any name; NULL is left unheard. The pointer is good until the thread's next call of the setter. */
void tms_set_current_tag(const char* tag);
const char* tms_get_current_tag(void);
/* What a pause does with later allocations: copies them to the host, to the disk, or drops their bytes. */
void tms_set_enable_cpu_backup(bool enable);
bool tms_get_enable_cpu_backup(void);
/* "pinned" or "mmap", or empty for pinned: both are the same pinned host memory here. */
void tms_set_cpu_backup_backend(const char* backend);
const char* tms_get_cpu_backup_backend(void);
void tms_set_enable_disk_backup(bool enable);
bool tms_get_enable_disk_backup(void);
/* An absolute folder, as disk.path. */
void tms_set_disk_backup_dir(const char* folder);

/* An allocation in a region that would leave less free device memory is refused. */
void set_memory_margin_bytes(uint64_t bytes);
/* As host.retain, auto or none. */
void tms_set_retain_cpu_backup(bool retain);
bool tms_get_retain_cpu_backup(void);

/* NULL or "": every tag. 0, or a lowtide_result: the state is as before. A tag that nothing carries is no error. A
 * resume waits for device memory up to device.wait (here 20 s); after it failed launches, copies and memsets answer out
 * of memory, until another resume succeeds. */
int tms_pause(const char* tag);
int tms_resume(const char* tag);
/* Where the parked bytes of [address, +size) lie in host memory, until the next pause, resume or free; NULL if they are
 * on the device or on disk, or were dropped. */
uint8_t* tms_get_cpu_backup_pointer(const uint8_t* address, uint64_t size);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
