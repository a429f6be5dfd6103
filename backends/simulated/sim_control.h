/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulated libcuda.so.1 exports besides the driver ABI, for tests and for `status`.
 *
 * Environment, read at the first call of the process:
 *   LOWTIDE_SIM_DEVICES   number of devices, 1 to 16; default 1
 *   LOWTIDE_SIM_MEMORY    bytes of each device: a number, or one with K, M, G; default 8G
 *   LOWTIDE_SIM_PERSONA   which device is played, and with which defects (personas.hpp); default `h200`
 *   LOWTIDE_SIM_DIR       a folder: all processes that name it share the devices' memory; unset: a device of one's own
 *   LOWTIDE_SIM_FAIL      as the argument of lowtide_sim_fail
 * A bad value makes cuInit fail and say so in one line on stderr.
 *
 * Kernels. cuModuleLoadData takes Lowtide's own PTX (page digests), and an image that begins with the text
 * LOWTIDE_SIM_IMAGE; it refuses any other. The latter has these, where every parameter of a kernel is 64 bits wide,
 * whatever it means:
 *   sim_fill_random(address, bytes, seed)              the 8 bytes at 8*i are splitmix64(seed + i), little endian
 *   sim_add_one(address, bytes)                        adds 1 to every byte
 *   sim_copy(to, from, bytes)                        copies the bytes
 *   sim_fill_slowly(address, bytes, value, ms)         writes the range in 64 steps spread over that time
 *   sim_spin_until(host_address)                       runs until the 32-bit integer there is not 0
 * where splitmix64(x) is: x += 0x9e3779b97f4a7c15; x = (x ^ x>>30) * 0xbf58476d1ce4e5b9;
 * x = (x ^ x>>27) * 0x94d049bb133111eb; x ^ x>>31.
 */
#ifndef LOWTIDE_BACKENDS_SIMULATED_SIM_CONTROL_H
#define LOWTIDE_BACKENDS_SIMULATED_SIM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#define LOWTIDE_SIM_IMAGE "LOWTIDE-SIM-KERNELS"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* 1. That the symbol is there says that this libcuda.so.1 is not a GPU's. */
int lowtide_sim_is_simulated(void);

/* Replaces the fault plan and sets all call counts to 0. "cuMemMap:3" fails the 3rd call from now, "cuMemMap:3+" that
 * and all later ones; several are separated by commas. A name is an exported name, or a base name that stands for all
 * its variants ("cuMemAlloc" for cuMemAlloc_v2), whose calls then count together. A failing call has no effect; it
 * answers out of memory if it is one that allocates, else CUDA_ERROR_UNKNOWN. NULL or "" clears the plan. 0, or -1 and
 * nothing changed if the text is not a plan. */
int lowtide_sim_fail(const char* plan);

/* Calls since the last lowtide_sim_fail, failed ones included; names as above; 0 for an unknown name. */
uint64_t lowtide_sim_calls(const char* function);

/* The exported driver functions, for index 0, 1, ...; NULL behind the last. */
const char* lowtide_sim_function_name(size_t index);

/* What this process has now. `struct_size` is set by the caller. */
typedef struct lowtide_sim_live {
  size_t struct_size;
  uint64_t physical_handles;   /* cuMemCreate or import, not yet given back to the device */
  uint64_t mappings;           /* cuMemMap */
  uint64_t reservations;       /* cuMemAddressReserve */
  uint64_t blocks;             /* cuMemAlloc and its kind, managed and stream-ordered ones included */
  uint64_t host_registrations; /* cuMemHostRegister */
  uint64_t host_allocations;   /* cuMemHostAlloc, cuMemAllocHost */
  uint64_t contexts;
  uint64_t streams; /* cuStreamCreate; default streams do not count */
  uint64_t events;
  uint64_t graphs;         /* graphs and executable graphs */
  uint64_t used_bytes[16]; /* device memory of this process, by device */
  uint64_t modules;        /* cuModuleLoadData and its kind */
} lowtide_sim_live;

void lowtide_sim_counts(lowtide_sim_live* live);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
