// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "allocator/base/cgroup.hpp"
#include "allocator/base/cpu_share.hpp"

namespace lowtide {
namespace {

constexpr std::uint64_t most_processors = CHAR_BIT * sizeof(Processors);

/// Adds the processors of a list such as "0-15,32-47".
void add_listed(std::string_view list, Processors& processors) {
  while (const auto first = leading_number(list)) {
    const auto end = std::min(list.find(','), list.size());
    const auto dash = list.substr(0, end).find('-');
    const auto last = dash == std::string_view::npos ? first : leading_number(list.substr(dash + 1));
    if (!last) return;
    for (auto i = *first; i <= *last && i < most_processors; ++i) CPU_SET_S(i, sizeof processors, processors.data());
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

}  // namespace

bool prefer_node(void* memory, Bytes size, int node) noexcept {
  constexpr int bits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 16> nodes{};
  if (node < 0 || node >= bits * static_cast<int>(nodes.size())) return true;
  nodes[static_cast<std::size_t>(node / bits)] = 1ul << (node % bits);
  return ::syscall(SYS_mbind, memory, size.value, MPOL_PREFERRED, nodes.data(), nodes.size() * bits, 0) == 0;
}

void run_on_node(int node, const std::string& root) noexcept {
  if (node < 0) return;
  try {
    const auto usable = processors_of_thread();
    if (!usable) return;
    Processors near{};
    add_listed(text_of_file(root + "/sys/devices/system/node/node" + std::to_string(node) + "/cpulist"), near);
    CPU_AND_S(sizeof near, near.data(), near.data(), usable->data());
    if (CPU_COUNT_S(sizeof near, near.data()) > 0) (void)::sched_setaffinity(0, sizeof near, near.data());
  } catch (...) {  // no memory for a line of text: the thread stays where it is
  }
}

}  // namespace lowtide
