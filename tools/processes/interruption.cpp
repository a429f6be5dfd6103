// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/interruption.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

std::atomic<int> received{0};
std::atomic<unsigned> seen{0};  ///< a bit per signal
std::atomic<const Interruption*> living{nullptr};

void say(const std::string& words) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, words.data(), words.size());
}

}  // namespace

void Interruption::handle(int signal) {
  const int error = errno;
  const auto bit = 1U << static_cast<unsigned>(signal);
  const auto before = seen.fetch_or(bit);
  received = signal;
  const Interruption* self = living;
  if ((before & bit) != 0) {
    if (self != nullptr) say(self->words_.again);
    end_by_signal();
  } else if (self != nullptr) {
    if (before == 0) say(self->words_.first);
    [[maybe_unused]] const auto written = ::write(self->write_end_.get(), "", 1);
  }
  errno = error;
}

Interruption::Interruption(Words words) : words_(std::move(words)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw CommandError(ExitCode::failed, "no descriptor is left to be told of a signal by");
  }
  read_end_ = UniqueFd(ends[0]);
  write_end_ = UniqueFd(ends[1]);
  living = this;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    ::sigaction(signals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction ours {};
    ours.sa_handler = &Interruption::handle;
    ours.sa_flags = SA_RESTART;
    ::sigaction(signals[i], &ours, nullptr);
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
  living = nullptr;
}

bool Interruption::came() noexcept { return received != 0; }

void Interruption::end_by_signal() noexcept {
  const int signal = received;
  if (signal == 0) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace lowtide::tools
