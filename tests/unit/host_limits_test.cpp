// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host_limits.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"

using namespace lowtide;
using namespace lowtide::tools;
namespace fs = std::filesystem;

namespace {

// A machine made of files.
class Machine {
 public:
  Machine() {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    root = ::mkdtemp(name);
    put("/proc/meminfo", "MemTotal:       100 kB\nMemAvailable:   1048576 kB\n");
  }
  ~Machine() { fs::remove_all(root); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void put_group(const std::string& path, const std::string& max, const std::string& high,
                 const std::string& current) const {
    put(path + "/memory.max", max + '\n');
    put(path + "/memory.high", high + '\n');
    put(path + "/memory.current", current + '\n');
    put(path + "/memory.stat", "anon 1\ninactive_file 4096\n");
  }
  std::string root;
};

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

TEST_CASE("the limit of an ancestor counts, without the file cache") {
  const Machine machine;
  machine.put("/proc/self/mountinfo", mount_2);
  machine.put("/proc/self/cgroup", "0::/slice/job/step\n");
  machine.put_group("/sys/fs/cgroup/slice", "104857600", "max", "52432896");
  machine.put_group("/sys/fs/cgroup/slice/job", "max", "max", "0");
  machine.put_group("/sys/fs/cgroup/slice/job/step", "1073741824", "10485760", "0");
  const auto limits = read_host_limits(machine.root);
  REQUIRE(limits.cgroups.size() == 3);
  CHECK(limits.cgroups[0].hard);
  CHECK(limits.cgroups[0].limit == 1_GiB);
  CHECK_FALSE(limits.cgroups[1].hard);
  CHECK(limits.cgroups[1].limit == 10_MiB);
  CHECK(limits.cgroups[2].limit == 100_MiB);
  CHECK(limits.cgroups[2].used == Bytes{52432896 - 4096});
  // The soft limit slows down and does not bound.
  CHECK(limits.room() == Bytes{104857600 - (52432896 - 4096)});
}

TEST_CASE("version 1 of control groups is read, and its largest number means no limit") {
  const Machine machine;
  machine.put("/proc/self/mountinfo", mount_2 + mount_1);
  machine.put("/proc/self/cgroup", "5:cpu,memory:/job\n0::/\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "104857600\n");
  machine.put("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 0\n");
  machine.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto limits = read_host_limits(machine.root);
  REQUIRE(limits.cgroups.size() == 1);
  CHECK(limits.room() == 100_MiB);
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
