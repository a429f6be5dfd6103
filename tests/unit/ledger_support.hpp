// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "allocator/policy/ledger.hpp"

namespace lowtide::test {

/// A folder in shared memory in which ledgers can be made; goes with the object.
class LedgerFolder {
 public:
  LedgerFolder() {
    char name[] = "/dev/shm/lowtide-test-XXXXXX";
    if (::mkdtemp(name) == nullptr) throw std::runtime_error("no folder in /dev/shm");
    parent_ = name;
  }
  LedgerFolder(const LedgerFolder&) = delete;
  LedgerFolder& operator=(const LedgerFolder&) = delete;
  ~LedgerFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(parent_, ignored);
  }

  /// Not there until the first ledger makes it.
  std::string path() const { return parent_ + "/ledger"; }
  bool exists() const { return std::filesystem::exists(std::filesystem::symlink_status(path())); }

 private:
  std::string parent_;
};

inline TagName tag(std::string_view name) { return *TagName::parse(name); }

inline Holding holding(std::string_view name, const std::string& device, Bytes bytes,
                       TagState state = TagState::active) {
  Holding made;
  made.own = true;
  made.tag = tag(name);
  made.device = device;
  made.bytes = bytes;
  made.state = state;
  return made;
}

}  // namespace lowtide::test
