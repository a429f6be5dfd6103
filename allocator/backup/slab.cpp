// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/slab.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace lowtide {

Result<std::unique_ptr<Slab>> Slab::make(Backend& backend, Bytes size) {
  void* memory = ::mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Error::format(Code::host_budget, "no %s of host memory for a backup: %s", to_text(size).c_str(),
                              std::strerror(errno)));
  }
  // Each is a wish: a kernel without huge pages, or an old one, still gives memory that works.
  ::madvise(memory, size.value, MADV_HUGEPAGE);
  ::madvise(memory, size.value, MADV_DONTFORK);
  ::madvise(memory, size.value, MADV_DONTDUMP);
  const bool registered = backend.register_host(memory, size).has_value();
  try {
    return std::unique_ptr<Slab>(new Slab(backend, memory, size, registered));
  } catch (...) {
    if (registered) (void)backend.unregister_host(memory);
    ::munmap(memory, size.value);
    throw;
  }
}

Slab::~Slab() {
  auto* memory = reinterpret_cast<void*>(slots.range().start.value);
  // Fails when the context that registered it is gone; the registration went with it.
  if (registered_) (void)backend_.unregister_host(memory);
  ::munmap(memory, size().value);
}

}  // namespace lowtide
