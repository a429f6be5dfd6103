// SPDX-License-Identifier: Apache-2.0
// A client of the control socket that knows of docs/control-protocol.md and nothing else.
#pragma once

#include <sys/types.h>

#include <string>

namespace hazards {

/// LOWTIDE_RUNTIME_DIR of this program and its children. If it has none, the first call makes one and sets the
/// variable, and so comes before the first GPU call; it is removed at the end of the program.
const std::string& runtime_directory();

/// The path of a process's socket, whether it is there or not.
std::string socket_of(pid_t process);

/// One connection, for one request.
class Client {
 public:
  explicit Client(pid_t process);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void send(const std::string& request) const;
  /// The last line of the answer; "" if the connection ended without one.
  std::string answer() const;

 private:
  int socket_ = -1;
};

/// Sends one request and returns the last line of the answer.
std::string ask(pid_t process, const std::string& request);
bool is_ok(const std::string& answer);
/// The answer's text contains `part`.
bool says(const std::string& answer, const std::string& part);
/// The number behind `"name":` in an answer; -1 if there is none.
long long number_in(const std::string& answer, const std::string& name);

}  // namespace hazards
