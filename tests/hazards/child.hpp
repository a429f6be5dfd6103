// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace hazards {

/// A child's environment where it differs from this program's; "" takes a variable away.
using Environment = std::map<std::string, std::string>;

/// How a program ended, and what it printed.
struct Ending {
  int status = -1;  ///< as waitpid gives it: 0 is a normal exit with code 0
  std::string output;
  std::string errors;
};

/// Another program, which talks with the test line by line over its stdin and stdout. Killed if it outlives this
/// object.
class Child {
 public:
  /// `program` lies beside this one, unless it is a path.
  Child(const std::string& program, const std::vector<std::string>& arguments, const Environment& changes = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  /// Its next line; "" if it ended.
  std::string line();
  void say(const std::string& line) const;
  /// It has printed something that line() has not given yet.
  bool has_more() const;
  /// Waits until its first thread sleeps in the kernel for good.
  void wait_until_asleep() const;
  void kill() const;
  /// Closes its stdin and waits for its end.
  Ending end();

 private:
  void start(const std::string& path, const std::vector<std::string>& arguments, const Environment& changes);

  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  int errors_ = -1;
};

/// Runs `hazards_victim ROLE` to its end.
Ending run_victim(const std::string& role, const Environment& changes = {});

/// The folder of this program.
std::string own_folder();
/// How often `part` occurs in `text`.
int count_of(const std::string& text, const std::string& part);

}  // namespace hazards
