// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/host_limits.hpp"

#include <sched.h>

#include <thread>

#include "allocator/base/cpu_share.hpp"
#include "allocator/base/numa.hpp"
#include "tests/catch.hpp"
#include "tests/unit/fake_machine.hpp"

using namespace lowtide;
using lowtide::test::Machine;

namespace {

const std::string mount_2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
const std::string mount_1 = "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

}  // namespace

TEST_CASE("without control groups the host's available memory is the room") {
  const Machine machine;
  const auto limits = read_host_limits(machine.root);
  CHECK(limits.available == 1_GiB);
  CHECK(limits.cgroups.empty());
  CHECK(limits.room() == 1_GiB);
}

TEST_CASE("on a machine that tells nothing there is no room known, and no crash") {
  const auto limits = read_host_limits("/nonexistent");
  CHECK_FALSE(limits.available);
  CHECK_FALSE(limits.room());
}

TEST_CASE("the limit of an ancestor counts, without the file cache, and memory.high bounds as memory.max does") {
  const Machine machine;
  machine.put("/proc/self/mountinfo", mount_2);
  machine.put("/proc/self/cgroup", "0::/slice/job/step\n");
  machine.put_group("/sys/fs/cgroup/slice", "104857600", "max", "52432896");
  machine.put_group("/sys/fs/cgroup/slice/job", "max", "max", "0");
  machine.put_group("/sys/fs/cgroup/slice/job/step", "1073741824", "73400320", "0");
  auto limits = read_host_limits(machine.root);
  REQUIRE(limits.cgroups.size() == 3);
  CHECK(limits.cgroups[0].limit == 1_GiB);
  CHECK(limits.cgroups[0].folder == machine.root + "/sys/fs/cgroup/slice/job/step");
  CHECK(limits.cgroups[1].limit == 70_MiB);
  CHECK(limits.cgroups[1].file == machine.root + "/sys/fs/cgroup/slice/job/step/memory.high");
  CHECK(limits.cgroups[2].limit == 100_MiB);
  CHECK(limits.cgroups[2].used == Bytes{52432896 - 4096 - 8192});
  CHECK(limits.room() == Bytes{104857600 - (52432896 - 4096 - 8192)});

  machine.put("/sys/fs/cgroup/slice/job/step/memory.high", "10485760\n");
  limits = read_host_limits(machine.root);
  CHECK(limits.room() == 10_MiB);
}

TEST_CASE("version 1 of control groups is read, and its largest number means no limit") {
  const Machine machine;
  machine.put("/proc/self/mountinfo", mount_2 + mount_1);
  machine.put("/proc/self/cgroup", "5:cpu,memory:/job\n0::/\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "104857600\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.soft_limit_in_bytes", "4096\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.stat",
              "inactive_file 5\ntotal_inactive_file 4096\ntotal_active_file 8192\n");
  machine.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto limits = read_host_limits(machine.root);
  REQUIRE(limits.cgroups.size() == 1);
  CHECK(limits.room() == 100_MiB + Bytes{4096 + 8192});
}

TEST_CASE("in a container the group named from the real top is found below the mount") {
  const Machine machine;
  machine.put("/proc/self/mountinfo", "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  machine.put_group("/sys/fs/cgroup", "104857600", "max", "0");
  for (const char* group : {"0::/docker/abc\n", "0::/\n", "0::/docker/abc/inner\n", "0::/../elsewhere\n"}) {
    machine.put("/proc/self/cgroup", group);
    CAPTURE(group);
    CHECK(read_host_limits(machine.root).room() == 100_MiB);
  }
}

TEST_CASE("a group that uses more than its limit has no room, not a huge one") {
  const Machine machine;
  machine.put("/proc/self/mountinfo", mount_2);
  machine.put("/proc/self/cgroup", "0::/\n");
  machine.put_group("/sys/fs/cgroup", "4096", "max", "1000000");
  CHECK(read_host_limits(machine.root).room() == Bytes{0});
}

TEST_CASE("a thread's processors are bounded by the quota of every ancestor, rounded down, and are never none") {
  const Machine machine;
  const auto by_affinity = usable_processors(machine.root);
  CHECK(by_affinity >= 1);
  machine.put("/proc/self/mountinfo", mount_2);
  machine.put("/proc/self/cgroup", "0::/job/step\n");
  machine.put("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  CHECK(usable_processors(machine.root) == by_affinity);
  machine.put("/sys/fs/cgroup/job/cpu.max", "190000 100000\n");
  CHECK(usable_processors(machine.root) == 1);
  machine.put("/sys/fs/cgroup/job/cpu.max", "10000 100000\n");
  CHECK(usable_processors(machine.root) == 1);
  machine.put("/sys/fs/cgroup/job/cpu.max", "99900000 100000\n");
  CHECK(usable_processors(machine.root) == by_affinity);
}

TEST_CASE("version 1's quota bounds the processors, and -1 does not") {
  const Machine machine;
  const auto by_affinity = usable_processors(machine.root);
  machine.put("/proc/self/mountinfo", "32 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  machine.put("/proc/self/cgroup", "1:cpu,cpuacct:/job\n");
  machine.put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  machine.put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  CHECK(usable_processors(machine.root) == by_affinity);
  machine.put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
  CHECK(usable_processors(machine.root) == 1);
}

namespace {

/// Where a new thread may run after it moved to node 1 of a machine whose node has the processors `list`.
cpu_set_t after_moving_to(const char* list) {
  const Machine machine;
  if (list != nullptr) machine.put("/sys/devices/system/node/node1/cpulist", list);
  cpu_set_t set{};
  std::thread([&] {
    run_on_node(1, machine.root);
    ::sched_getaffinity(0, sizeof set, &set);
  }).join();
  return set;
}

}  // namespace

TEST_CASE("a thread moves to the processors of a node that it may use, and stays where there are none") {
  cpu_set_t usable{};
  REQUIRE(::sched_getaffinity(0, sizeof usable, &usable) == 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &usable)) --last;
  cpu_set_t only{};
  CPU_SET(last, &only);
  for (const auto& list : {std::to_string(last) + "\n", "8000-8191," + std::to_string(last) + "-9000,9002\n"}) {
    INFO(list);
    const auto moved = after_moving_to(list.c_str());
    CHECK(CPU_EQUAL(&moved, &only));
  }
  for (const char* list :
       {"8000-8191\n", "", "\n", "all\n", "99999999999999999999\n", "7-\n8", static_cast<const char*>(nullptr)}) {
    INFO((list != nullptr ? list : "no such node"));
    const auto moved = after_moving_to(list);
    CHECK(CPU_EQUAL(&moved, &usable));
  }
}
