// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "allocator/base/unique_fd.hpp"
#include "backends/simulated/cuda_abi.hpp"

namespace lowtide::sim {

// The host's address space plays the device's: a device address is a host address, and what is not accessible on the
// device faults on the host. None of it is inherited by a fork. Sizes and alignments are multiples of `page`.

/// Addresses that fault, nothing behind them; at `hint` if that is free and aligned. 0 if there are none.
Address reserve_addresses(std::uint64_t size, std::uint64_t alignment, Address hint);
void release_addresses(Address address, std::uint64_t size);

/// Zeroed memory of its own, readable and writable; 0 if there is none. Freed by release_addresses.
Address map_memory(std::uint64_t size, std::uint64_t alignment = page);

/// Puts [offset, offset + size) of `file` behind reserved addresses, accessible as `protection` (PROT_...) says.
bool map_file(Address address, std::uint64_t size, int file, std::uint64_t offset, int protection);
/// The addresses fault again and stay reserved.
bool map_nothing(Address address, std::uint64_t size);
bool protect(Address address, std::uint64_t size, int protection);

/// An anonymous file whose pages play physical memory; -1 if there is none. `size` costs nothing until it is written.
UniqueFd make_memory_file(const char* name, std::uint64_t size);
/// Gives the pages back to the host; they read as zero afterwards.
void discard_pages(int file, std::uint64_t offset, std::uint64_t size);

}  // namespace lowtide::sim
