// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/address_space.hpp"

#include <fcntl.h>
#include <sys/mman.h>

namespace lowtide::sim {
namespace {

constexpr int nothing_behind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

Address map_anonymous(Address at, std::uint64_t size, int protection, int flags) {
  void* const memory = ::mmap(pointer(at), size, protection, flags, -1, 0);
  if (memory == MAP_FAILED) return 0;
  ::madvise(memory, size, MADV_DONTFORK);
  return reinterpret_cast<Address>(memory);
}

Address map_aligned(std::uint64_t size, std::uint64_t alignment, int protection) {
  const auto waste = alignment - page;
  const auto address = map_anonymous(0, size + waste, protection, nothing_behind);
  if (address == 0) return 0;
  const auto aligned = round_up_to(address, alignment);
  const auto before = aligned - address;
  if (before > 0) release_addresses(address, before);
  if (waste > before) release_addresses(aligned + size, waste - before);
  return aligned;
}

}  // namespace

Address reserve_addresses(std::uint64_t size, std::uint64_t alignment, Address hint) {
  if (hint != 0 && hint % alignment == 0) {
    const auto address = map_anonymous(hint, size, PROT_NONE, nothing_behind | MAP_FIXED_NOREPLACE);
    if (address != 0) return address;
  }
  return map_aligned(size, alignment, PROT_NONE);
}

void release_addresses(Address address, std::uint64_t size) { ::munmap(pointer(address), size); }

Address map_memory(std::uint64_t size, std::uint64_t alignment) {
  return map_aligned(size, alignment, PROT_READ | PROT_WRITE);
}

bool map_file(Address address, std::uint64_t size, int file, std::uint64_t offset, int protection) {
  void* const memory =
      ::mmap(pointer(address), size, protection, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return false;
  ::madvise(memory, size, MADV_DONTFORK);
  return true;
}

bool map_nothing(Address address, std::uint64_t size) {
  return map_anonymous(address, size, PROT_NONE, nothing_behind | MAP_FIXED) != 0;
}

bool protect(Address address, std::uint64_t size, int protection) {
  return ::mprotect(pointer(address), size, protection) == 0;
}

UniqueFd make_memory_file(const char* name, std::uint64_t size) {
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
  if (file && ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) file.reset();
  return file;
}

void discard_pages(int file, std::uint64_t offset, std::uint64_t size) {
  ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size));
}

}  // namespace lowtide::sim
