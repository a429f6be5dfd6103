// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

namespace lowtide::test {

/// A forked child that runs a function and then leaves without the parent's destructors. It reports by single letters,
/// and waits for the parent's. Killed with the object.
class Child {
 public:
  /// The child's side of the line.
  class Line {
   public:
    Line(int in, int out) : in_(in), out_(out) {}
    void say(char letter) const {
      if (::write(out_, &letter, 1) != 1) ::_exit(3);
    }
    /// Ends the child if the parent is gone.
    void wait() const {
      char letter = 0;
      if (::read(in_, &letter, 1) != 1) ::_exit(4);
    }

   private:
    int in_;
    int out_;
  };

  explicit Child(const std::function<void(const Line&)>& work) {
    int down[2];
    int up[2];
    if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(down[1]);
      ::close(up[0]);
      work(Line(down[0], up[1]));
      ::_exit(0);
    }
    ::close(down[0]);
    ::close(up[1]);
    to_ = down[1];
    from_ = up[0];
    if (pid_ < 0) throw std::runtime_error("no child");
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill();
    ::close(to_);
    ::close(from_);
  }

  pid_t pid() const { return pid_; }
  /// The next letter; 0 once the child is gone.
  char hear() const {
    char letter = 0;
    return ::read(from_, &letter, 1) == 1 ? letter : '\0';
  }
  void tell() const {
    if (::write(to_, "g", 1) != 1) throw std::runtime_error("the child is gone");
  }
  /// Returns when it stands still.
  void stop() const {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, &status, WUNTRACED);
  }
  /// SIGKILL; returns when it is gone.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  int from_ = -1;
};

}  // namespace lowtide::test
