// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/drain.hpp"

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace lowtide {

struct Drain::Call {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Status> result;

  bool wait_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex);
    return ended.wait_until(lock, deadline, [this] { return result.has_value(); });
  }
};

namespace {

const Error not_at_rest(Code::busy, "the device did not come to rest in time: a kernel is still running");

/// The host's signal handlers run on the host's threads: one that starts while this lives gets no signal.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

Status without_throwing(const std::function<Status()>& synchronise) noexcept {
  try {
    return synchronise();
  } catch (...) {
    return fail(Code::host_budget, "the host has no memory to wait for the device");
  }
}

}  // namespace

Status Drain::wait(std::function<Status()> synchronise, std::chrono::steady_clock::time_point deadline) {
  if (running_ && !running_->wait_until(deadline)) return fail(not_at_rest);
  running_.reset();
  auto call = std::make_shared<Call>();
  try {
    const SignalsBlocked blocked;
    std::thread([call, synchronise = std::move(synchronise)] {
      auto status = without_throwing(synchronise);
      const std::lock_guard lock(call->mutex);
      call->result = status;
      call->ended.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    return fail(Code::refused, "no thread could be made to wait for the device: the process or its cgroup has no more");
  }
  running_ = std::move(call);
  if (!running_->wait_until(deadline)) return fail(not_at_rest);
  return *std::exchange(running_, nullptr)->result;
}

}  // namespace lowtide
