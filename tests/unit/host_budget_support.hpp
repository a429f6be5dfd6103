// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "allocator/backup/host_budget.hpp"
#include "tests/catch.hpp"
#include "tests/unit/fake_machine.hpp"

namespace lowtide::test {

inline constexpr std::chrono::milliseconds no_patience{0};
inline constexpr std::chrono::milliseconds all_patience{300'000};

/// 64 GiB available, and a group below a limited ancestor, which nobody uses yet.
class LimitedMachine : public Machine {
 public:
  explicit LimitedMachine(Bytes limit) {
    put("/dev/shm/other", "");
    put("/proc/meminfo", "MemAvailable: 67108864 kB\n");
    put("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/memory.max", std::to_string(limit.value) + '\n');
    use({});
  }
  void use(Bytes size) const { put("/sys/fs/cgroup/job/memory.current", std::to_string(size.value) + '\n'); }
};

inline std::string refusal(HostBudget& budget, Bytes need) {
  const auto result = budget.reserve(need);
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == Code::host_budget);
  return result.error().message();
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// With the page tables: what has to be free for a need of this.
constexpr Bytes room_for(Bytes need) { return need + Bytes{need.value / 256}; }

}  // namespace lowtide::test
