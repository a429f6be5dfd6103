// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lowtide::test {

/// A machine made of files: what /proc and /sys say below `root`.
class Machine {
 public:
  Machine() {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    root = ::mkdtemp(name);
    put("/proc/meminfo", "MemTotal:       100 kB\nMemAvailable:   1048576 kB\n");
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { std::filesystem::remove_all(root); }

  /// Whole at every moment for those who read meanwhile.
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path + ".new") << text;
    std::filesystem::rename(root + path + ".new", root + path);
  }
  void put_group(const std::string& path, const std::string& max, const std::string& high,
                 const std::string& current) const {
    put(path + "/memory.max", max + '\n');
    put(path + "/memory.high", high + '\n');
    put(path + "/memory.current", current + '\n');
    put(path + "/memory.stat", "anon 1\ninactive_file 4096\nactive_file 8192\nworkingset_refault_file 9\n");
  }

  std::string root;
};

}  // namespace lowtide::test
