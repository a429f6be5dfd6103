// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/interruption.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

std::atomic<int> received{0};
std::atomic<int> told{-1};

void tell(int signal) {
  const int error = errno;
  received = signal;
  [[maybe_unused]] const auto written = ::write(told, "", 1);
  errno = error;
}

}  // namespace

Interruption::Interruption() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw CommandError(ExitCode::failed, "no descriptor is left to be told of a signal by");
  }
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
  told = ends[1];
  for (std::size_t i = 0; i < signals.size(); ++i) {
    ::sigaction(signals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction ours {};
    ours.sa_handler = &tell;
    ours.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    ::sigaction(signals[i], &ours, nullptr);
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
  told = -1;
}

void Interruption::end_by_signal() noexcept {
  const int signal = received;
  if (signal == 0) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace lowtide::tools
