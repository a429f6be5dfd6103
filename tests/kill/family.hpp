// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/hazards/child.hpp"

namespace kill_suite {

/// A process's use of the machine while it is not paused.
struct Footprint {
  std::uint64_t device_bytes = 0;
  std::uint64_t descriptors = 0;
  bool operator==(const Footprint&) const = default;
};

/// Waits until a process of this machine is dead, reaped or not, with all its threads: its memory, descriptors and
/// locks are gone. Made while it lives.
class DeathWatch {
 public:
  explicit DeathWatch(pid_t process);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  void wait() const;

 private:
  int file_;
};

/// A launcher without a GPU and its members, which work until they are killed. All end with this object.
class Family {
 public:
  struct Member {
    std::size_t index;
    pid_t pid;
    Footprint at_rest;
  };

  Family(const std::vector<std::uint64_t>& seeds, const hazards::Environment& environment);

  pid_t launcher() const { return launcher_.pid(); }
  std::vector<Member>& members() { return members_; }
  const std::vector<Member>& members() const { return members_; }

  /// The member looks at all its bytes; throws what it complains of. It must not be paused.
  Footprint check(const Member& member);
  /// SIGKILL to the members at these places in members(), and waits until they are dead; they are members no more, but
  /// corpses until they are reaped.
  void kill(const std::vector<std::size_t>& places);
  void reap();

 private:
  std::string ask(std::size_t index, const std::string& text);

  hazards::Child launcher_;
  std::vector<Member> members_;
  std::vector<std::size_t> corpses_;
};

}  // namespace kill_suite
