// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/host_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "allocator/base/unique_fd.hpp"

namespace lowtide {
namespace {

/// Nothing if the kernel does not say.
std::optional<Bytes> available_memory() noexcept {
  const UniqueFd file(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return std::nullopt;
  const char* line = std::strstr(text.data(), "MemAvailable:");
  if (line == nullptr) return std::nullopt;
  return Bytes{std::strtoull(line + std::strlen("MemAvailable:"), nullptr, 10) * 1024};
}

}  // namespace

Status host_has_room(Bytes needed, Bytes retained) noexcept {
  const auto available = available_memory();
  if (!available || needed <= *available + retained) return {};
  return fail(
      Error::format(Code::host_budget,
                    "the backup needs %s of host memory and %s are available (and %s kept from an earlier pause). "
                    "Nothing changed: free host memory, or let the tag be discarded (tag.NAME.pause)",
                    to_text(needed).c_str(), to_text(*available).c_str(), to_text(retained).c_str()));
}

}  // namespace lowtide
