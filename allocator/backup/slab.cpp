// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/slab.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "allocator/base/numa.hpp"

namespace lowtide {
namespace {

/// Address space that begins with a huge page: kernels before 6.7 do not see to it. Null with errno.
void* map_aligned(Bytes size) noexcept {
  const std::size_t mapped = size.value + Slab::unit.value;
  void* memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* first = static_cast<unsigned char*>(memory);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % Slab::unit.value;
  if (before > 0) ::munmap(first, before);
  ::munmap(first + before + size.value, Slab::unit.value - before);
  return first + before;
}

/// Has every page put there now, by the thread that waits for it. By hand: MADV_POPULATE_WRITE holds the process's
/// memory map for as long as it runs, so that neither other threads nor the driver get on (16 threads: 5 GiB/s against
/// 29).
void touch(void* memory, Bytes size) noexcept {
  constexpr std::size_t page = 4096;
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  for (std::size_t offset = 0; offset < size.value; offset += page) bytes[offset] = 0;
}

}  // namespace

Result<std::unique_ptr<Slab>> Slab::make(const Source& source, Bytes size) {
  void* memory = map_aligned(size);
  if (memory == nullptr) {
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
  const int node = source.backend.capabilities().host_node;
  if (!prefer_node(memory, size, node) && source.own_thread) run_on_node(node, "");
  touch(memory, size);
  source.reservation.touched(size);
  slab->counted_ = true;
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
