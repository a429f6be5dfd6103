// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "allocator/base/unique_fd.hpp"
#include "tools/processes/ask.hpp"

namespace lowtide::tools {

/// One process of the demo: lowtide-demo-worker under Lowtide, spoken to over two pipes.
class Actor {
 public:
  using Environment = std::map<std::string, std::string>;

  /// Starts it with `environment` added to ours and waits until its device is ready. Throws CommandError.
  Actor(std::string name, const Environment& environment);
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;
  ~Actor() { end(); }

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  bool running() const { return pid_ >= 0; }

  /// One request; the answer without its "ok". Throws CommandError with the worker's own words.
  std::string ask(const std::string& request);
  /// As anyone on this machine could ask.
  ProcessStatus status() const;
  nlohmann::json pause() const;
  nlohmann::json resume() const;
  /// Ends the process: by the end of its input, or by SIGKILL if it does not go. Repeating it is a no-op.
  void end() noexcept;

 private:
  std::string answer();

  const std::string name_;
  pid_t pid_ = -1;
  UniqueFd requests_;
  UniqueFd answers_;
  std::string received_;
};

}  // namespace lowtide::tools
