// SPDX-License-Identifier: Apache-2.0
#include "backends/portable/host_gaps.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "allocator/base/unique_fd.hpp"

namespace lowtide::portable {
namespace {

/// All of /proc/self/maps; as far as it could be read.
std::string mappings() {
  std::string text;
  const UniqueFd file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  std::array<char, 16384> part;
  for (;;) {
    const auto count = file ? ::read(file.get(), part.data(), part.size()) : -1;
    if (count <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

/// "START-END ..." of a line, in hexadecimal; empty if it is none.
AddressRange range_of(std::string_view line) {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  const char* const last = line.data() + line.size();
  const auto dash = std::from_chars(line.data(), last, start, 16).ptr;
  if (dash == last || *dash != '-') return {};
  std::from_chars(dash + 1, last, end, 16);
  return {{start}, {end > start ? end - start : 0}};
}

}  // namespace

AddressRange HostGaps::mapped_in(AddressRange range) {
  const std::string text = mappings();
  for (std::string_view rest = text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const AddressRange mapping = range_of(line);
    if (mapping.start < range.end() && range.start < mapping.end()) return mapping;
  }
  return {};
}

void HostGaps::hold_above(DeviceAddress from) noexcept {
  // Of a limit, others would miss what is held here.
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
  try {
    const std::string text = mappings();
    DeviceAddress free_from = from;
    for (std::string_view rest = text; !rest.empty();) {
      const auto line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      // The gap below the stack is for it to grow, and above that the host places nothing.
      if (line.ends_with("[stack]")) return;
      const AddressRange mapping = range_of(line);
      if (mapping.start > free_from) {
        if (HeldAddresses gap({free_from, mapping.start - free_from}); gap) held_.push_back(std::move(gap));
      }
      free_from = std::max(free_from, mapping.end());
    }
  } catch (...) {  // no host memory: fewer are held
  }
}

}  // namespace lowtide::portable
