// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/this_process.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace lowtide::trace {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

Result<ThisProcess> ThisProcess::make() noexcept {
  void* const page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    return fail(
        Error::format(Code::refused, "a page of memory for the trace is not to be had: %s", std::strerror(errno)));
  if (::madvise(page, page_bytes, MADV_WIPEONFORK) != 0) {
    const int error = errno;
    ::munmap(page, page_bytes);
    return fail(Error::format(Code::unsupported, "a trace needs pages that are wiped in a fork child (Linux 4.14): %s",
                              std::strerror(error)));
  }
  return ThisProcess(new (page) std::atomic<bool>(true));
}

ThisProcess::ThisProcess(ThisProcess&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

ThisProcess::~ThisProcess() {
  if (page_ != nullptr) ::munmap(page_, page_bytes);
}

}  // namespace lowtide::trace
