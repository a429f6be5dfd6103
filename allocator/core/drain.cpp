// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/drain.hpp"

#include <csignal>
#include <condition_variable>
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

}  // namespace

Status Drain::wait(std::function<Status()> synchronise, std::chrono::steady_clock::time_point deadline) {
  if (running_ && !running_->wait_until(deadline)) return fail(not_at_rest);
  running_ = std::make_shared<Call>();
  // The host's signal handlers run on the host's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([call = running_, synchronise = std::move(synchronise)] {
      auto status = synchronise();
      const std::lock_guard lock(call->mutex);
      call->result = std::move(status);
      call->ended.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    running_.reset();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return fail(Code::refused, "no thread could be made to wait for the device: the process or its cgroup has no more");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!running_->wait_until(deadline)) return fail(not_at_rest);
  return *std::exchange(running_, nullptr)->result;
}

}  // namespace lowtide
