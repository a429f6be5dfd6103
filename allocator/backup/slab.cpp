// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/slab.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace lowtide {
namespace {

/// Where the kernel forbids it (a container without the right), the memory comes from wherever the thread runs.
void prefer_node(void* memory, Bytes size, int node) noexcept {
  constexpr int bits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 16> nodes{};
  if (node < 0 || node >= bits * static_cast<int>(nodes.size())) return;
  nodes[static_cast<std::size_t>(node / bits)] = 1ul << (node % bits);
  ::syscall(SYS_mbind, memory, size.value, MPOL_PREFERRED, nodes.data(), nodes.size() * bits, 0);
}

/// Has every page put there now: by the thread that waits for it, and not one by one by the driver.
bool populate(void* memory, Bytes size) noexcept {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(memory, size.value, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // no memory; the call is unknown before Linux 5.14
#endif
  constexpr std::size_t page = 4096;
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  for (std::size_t offset = 0; offset < size.value; offset += page) bytes[offset] = 0;
  return true;
}

}  // namespace

Result<std::unique_ptr<Slab>> Slab::make(const Source& source, Bytes size) {
  void* memory =
      ::mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Error::format(Code::host_budget, "no %s of host memory for a backup: %s", to_text(size).c_str(),
                              std::strerror(errno)));
  }
  std::unique_ptr<Slab> slab;
  try {
    slab.reset(new Slab(source, memory, size));
  } catch (...) {
    ::munmap(memory, size.value);
    throw;
  }
  // Each is a wish: a kernel without huge pages, or an old one, still gives memory that works.
  ::madvise(memory, size.value, MADV_HUGEPAGE);
  ::madvise(memory, size.value, MADV_DONTFORK);
  ::madvise(memory, size.value, MADV_DONTDUMP);
  prefer_node(memory, size, source.backend.capabilities().host_node);
  if (!populate(memory, size)) {
    return fail(Error::format(Code::host_budget, "the host has no %s for a backup: %s", to_text(size).c_str(),
                              std::strerror(errno)));
  }
  source.reservation.touched(size);
  slab->counted_ = true;
  slab->registered_ = source.backend.register_host(memory, size).has_value();
  return slab;
}

Slab::~Slab() {
  (void)unregister();
  ::munmap(memory(), size().value);
  if (counted_) budget_.release_held(size());
}

bool Slab::unregister() noexcept {
  if (registered_ && backend_.unregister_host(memory())) registered_ = false;
  return !registered_;
}

}  // namespace lowtide
