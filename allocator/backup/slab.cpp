// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/slab.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace lowtide {

Result<std::unique_ptr<Slab>> Slab::make(Backend& backend, Bytes size) {
  void* memory =
      ::mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Error::format(Code::host_budget, "no %s of host memory for a backup: %s", to_text(size).c_str(),
                              std::strerror(errno)));
  }
  // Each is a wish: a kernel without huge pages, or an old one, still gives memory that works.
  ::madvise(memory, size.value, MADV_HUGEPAGE);
  ::madvise(memory, size.value, MADV_DONTFORK);
  ::madvise(memory, size.value, MADV_DONTDUMP);
  std::unique_ptr<Slab> slab;
  try {
    slab.reset(new Slab(backend, memory, size));
  } catch (...) {
    ::munmap(memory, size.value);
    throw;
  }
  slab->registered_ = backend.register_host(memory, size).has_value();
  return slab;
}

Slab::~Slab() {
  (void)unregister();
  ::munmap(memory(), size().value);
}

bool Slab::unregister() noexcept {
  if (registered_ && backend_.unregister_host(memory())) registered_ = false;
  return !registered_;
}

}  // namespace lowtide
