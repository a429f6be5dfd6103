/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowtide: pause and resume a process's GPU memory at stable addresses.
 *
 * Every function is thread-safe, never throws, never ends the process, and may be called before the first GPU call. On
 * failure it returns a negative code; lowtide_last_error() then has the sentence, with numbers. What a call could not
 * do it leaves as it was, unless its description says otherwise. Sizes are bytes.
 */
#ifndef LOWTIDE_LOWTIDE_H
#define LOWTIDE_LOWTIDE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOWTIDE_API __attribute__((visibility("default")))

typedef enum lowtide_result {
  LOWTIDE_OK = 0,
  LOWTIDE_ERROR_INVALID = -1,       /* an argument or a call that can never be right */
  LOWTIDE_ERROR_CONFIG = -2,        /* an unknown key or a bad value */
  LOWTIDE_ERROR_DEVICE_MEMORY = -3, /* the device has not enough free memory now; nothing changed */
  LOWTIDE_ERROR_HOST_BUDGET = -4,   /* the host has not enough memory for the backup now; nothing changed */
  LOWTIDE_ERROR_REFUSED = -5,       /* a rule, a capture, a sharer or a full disk stands in the way; nothing changed */
  LOWTIDE_ERROR_MOVED = -6,         /* an address could not be had back; nothing changed */
  LOWTIDE_ERROR_DRIVER = -7,        /* a driver or disk call failed; no byte is lost, and repeating the call goes on */
  LOWTIDE_ERROR_UNSUPPORTED = -8,   /* this device, driver or build cannot do it */
  LOWTIDE_ERROR_CORRUPT = -9,       /* a backup does not hold what was written to it; it was not loaded */
  LOWTIDE_ERROR_BUSY = -10          /* another operation is under way */
} lowtide_result;

#define LOWTIDE_MAX_DEVICES 16

/* Free memory of one device, as the driver reports it for all processes together. */
typedef struct lowtide_device_report {
  int device;
  uint64_t free_before;
  uint64_t free_after;
} lowtide_device_report;

/* What a pause or a resume did. Set `struct_size` to sizeof(lowtide_report) before the call. */
typedef struct lowtide_report {
  size_t struct_size;
  uint64_t bytes_parked;    /* pause: copied to host memory or disk and taken off the device; resume: brought back */
  uint64_t bytes_discarded; /* pause: dropped; resume: brought back without their old content */
  uint64_t bytes_kept;      /* left on the device because the tag's action is keep, or pausing is off */
  uint64_t blocks;          /* allocations that changed */
  double seconds;
  int device_count;
  lowtide_device_report devices[LOWTIDE_MAX_DEVICES];
} lowtide_report;

/* Whether memory holds what its owner put there. */
typedef enum lowtide_freshness {
  LOWTIDE_VALID = 0,
  LOWTIDE_STALE =
      1, /* a pause dropped its content, or it never had any (`tag.NAME.initial`), and no update wrote it since */
  LOWTIDE_SYNCING = 2 /* an update is under way */
} lowtide_freshness;

/* A tag's memory on one device. Set `struct_size` to sizeof(lowtide_tag_info) before the call. */
typedef struct lowtide_tag_info {
  size_t struct_size;
  uint64_t blocks;
  uint64_t bytes_resident;     /* requested bytes with physical memory behind them */
  uint64_t bytes_parked;       /* requested bytes without */
  uint64_t bytes_backup;       /* bytes in host memory or on disk that hold parked content */
  uint64_t bytes_slack;        /* device bytes held beyond what was requested (rounding, freed parts of an extent) */
  int addresses_are_stable;    /* 1: parked memory comes back at its address for certain, and what was captured stays
                                * valid; 0: a resume tries for the address, and can answer ERROR_MOVED */
  lowtide_freshness freshness; /* of the worst block; see lowtide_begin_update */
  uint64_t bytes_stale;        /* requested bytes of blocks that are not VALID */
  uint64_t bytes_residue;      /* what updates were found not to write (`tag.NAME.coverage`: learn) */
  uint64_t version;            /* of the content that was last committed or declared valid; 0: none was */
  uint64_t updates;            /* commits and declarations */
  uint64_t repeated_calls;     /* calls about updates that found done what they ask for */
} lowtide_tag_info;

/* The calling thread's last error, in words; "" if there was none. Never NULL; valid until the thread's next call. */
LOWTIDE_API const char* lowtide_last_error(void);

/* The calling thread's allocations carry `tag` ([A-Za-z0-9_-]{1,63}) until the matching lowtide_scope_end. Scopes nest,
 * up to 32 deep. What communication libraries allocate (`unmanaged.callers`) stays theirs: a program that loads its
 * weights in a scope may open its communicators there. */
LOWTIDE_API lowtide_result lowtide_scope_begin(const char* tag);
LOWTIDE_API lowtide_result lowtide_scope_end(void);

/* The same for all threads of the process that have no scope of their own, those to come included; whoever calls. They
 * may end in any order: the end names its tag. */
LOWTIDE_API lowtide_result lowtide_process_scope_begin(const char* tag);
LOWTIDE_API lowtide_result lowtide_process_scope_end(const char* tag);

/* Sets a configuration key, as in LOWTIDE_CONF: lowtide_set("tag.kv_cache.pause", "discard"). Applies to later
 * allocations and transitions. */
LOWTIDE_API lowtide_result lowtide_set(const char* key, const char* value);

/* The process, all its threads, is in the phase `name` ([A-Za-z0-9_-]{1,63}) until the next call. Rules of the
 * configuration ([[match]]) can ask for it. If the configuration declares the phase ([[phase]]), this process's steps
 * of it are carried out in their order; what is there already is skipped. LOWTIDE_ERROR_BUSY where an update has to
 * come first: the steps before it are done, and the same call goes on after its commit. Any other error is that of a
 * step. */
LOWTIDE_API lowtide_result lowtide_phase(const char* name);

/* Parks, or brings back, all blocks of `tag` on all devices, as one transaction; NULL: of all tags. Blocks that are
 * already there are skipped, so repeating a call is a no-op. `report` may be NULL. Pausing waits for all work of this
 * process on the devices, refuses during a stream capture, and expects that no new work touches the tag until it is
 * resumed. */
LOWTIDE_API lowtide_result lowtide_pause(const char* tag, lowtide_report* report);
LOWTIDE_API lowtide_result lowtide_resume(const char* tag, lowtide_report* report);

/* Where device memory has no stable address (see lowtide_tag_info), a block may come back at another one. Without a
 * callback for its tag the resume is then ERROR_MOVED and changes nothing. With one, the resume succeeds: all bytes are
 * in place, and before the call returns `callback` is told of each block of `tag` that moved, on the thread that
 * resumes (a thread of Lowtide's for `lowtide resume`), while the gate of a hold is still closed. It may call Lowtide,
 * but not throw. From then on the block is freed by its new address. NULL: nobody follows the tag any more; a call that
 * is under way goes on. */
typedef void (*lowtide_relocate_callback)(const void* from, void* to, size_t bytes, void* user);
LOWTIDE_API lowtide_result lowtide_on_relocate(const char* tag, lowtide_relocate_callback callback, void* user);

/* Gives back the host memory that the process keeps for its next pause, which is then as slow as the first and copies
 * everything. Backups of parked memory stay. `bytes`, which may be NULL, is how much went back. Waits for a pause or
 * resume that runs, and refuses during a stream capture. */
LOWTIDE_API lowtide_result lowtide_trim(uint64_t* bytes);

/* An update writes a tag's content anew: weights that come from a trainer after a pause dropped the old ones. Until its
 * commit the tag's blocks count as SYNCING, those that it gets meanwhile too, and a pause and a resume of them are
 * REFUSED. Each call waits for a pause or resume that runs; one that finds done what it asks for (the same version, an
 * abort without an update) succeeds and is counted. ERROR_REFUSED, with nothing changed, where the tag is in no state
 * for the call or a rule stands in the way; ERROR_INVALID for a tag that nothing carries and nobody configured.
 *
 * begin: the tag is resident, or parked with a backup, which lowtide_write_paused then writes. Versions are the
 * caller's numbers.
 * commit: all of the tag was written, and is VALID and of `version`. Parked blocks must have been written as a whole.
 * What a resume brought back STALE it has filled with a pattern where `tag.NAME.coverage` says so; commit waits for the
 * devices, looks for what still holds it, and puts back what the pause held back of it. If there is more, the update is
 * over, the tag is STALE, and the ERROR_REFUSED names the bytes; with coverage = warn it is a line in the log.
 * abort: what was resident, and parked blocks that were written to, are STALE; other parked blocks are as before.
 * mark_valid: a STALE tag is VALID and of `version`, on the caller's word, for programs that cannot begin and commit:
 * what was not written is put back or named in the log, and never refused.
 * drop_backup: gives up the backups of what is parked of the tag, as if the pause had discarded it. */
LOWTIDE_API lowtide_result lowtide_begin_update(const char* tag, uint64_t version);
LOWTIDE_API lowtide_result lowtide_commit_update(const char* tag, uint64_t version);
LOWTIDE_API lowtide_result lowtide_abort_update(const char* tag);
LOWTIDE_API lowtide_result lowtide_mark_valid(const char* tag, uint64_t version);
LOWTIDE_API lowtide_result lowtide_drop_backup(const char* tag);

/* The memory of `tag` on `device` (-1: on all devices). An unknown tag is ERROR_INVALID, and so is any other negative
 * device. Its version outlives its blocks. */
LOWTIDE_API lowtide_result lowtide_get_tag_info(const char* tag, int device, lowtide_tag_info* info);

/* Reads or writes the backup of parked memory. [device_ptr, device_ptr + bytes) lies in one parked block that has one.
 * Waits for a pause or a resume that is under way, of whatever tag. `host` may be NULL for 0 bytes only.
 * On disk, a write of more than 2 MiB needs as much host memory meanwhile (ERROR_HOST_BUDGET: write less at a time);
 * one that the disk fails half-way puts back what it changed, and where the disk fails that too, it is ERROR_DRIVER and
 * says how many bytes then hold anything until they are written. */
LOWTIDE_API lowtide_result lowtide_read_paused(const void* device_ptr, void* host, size_t bytes);
LOWTIDE_API lowtide_result lowtide_write_paused(void* device_ptr, const void* host, size_t bytes);

/* The host's own copy of parked memory, to be read without a copy: `*host` is where the byte at `device_ptr` lies, and
 * `*bytes` how many of its block follow there in one piece: as a rule tens of MiB, and at least up to the next multiple
 * of 2 MiB; ask again behind it. Waits as lowtide_read_paused does. Valid until the block is resumed or freed or a byte
 * of it is written by lowtide_write_paused, and not in a child process. ERROR_UNSUPPORTED if the copy is not in host
 * memory: read it with lowtide_read_paused. */
LOWTIDE_API lowtide_result lowtide_view_paused(const void* device_ptr, const void** host, size_t* bytes);

/* Device memory under the calling thread's scope, a matching rule's tag, or the default tag; in the signatures of
 * PyTorch's pluggable allocator. NULL if there is none, with lowtide_last_error(). A current context of the device is
 * made if there is none. `stream` and the size given to lowtide_free are ignored. */
LOWTIDE_API void* lowtide_malloc(ssize_t size, int device, void* stream);
LOWTIDE_API void lowtide_free(void* ptr, ssize_t size, int device, void* stream);

#ifdef __cplusplus
}
#endif
#endif
