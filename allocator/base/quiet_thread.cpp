// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/quiet_thread.hpp"

#include <csignal>
#include <cstring>
#include <memory>

namespace lowtide {
namespace {

void* run_body(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Status QuietThread::start(const char* name, std::function<void()> body) {
  auto argument = std::make_unique<std::function<void()>>(std::move(body));
  sigset_t all;
  sigset_t of_the_host;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &of_the_host);
  const int error = pthread_create(&thread_, nullptr, run_body, argument.get());
  pthread_sigmask(SIG_SETMASK, &of_the_host, nullptr);
  if (error != 0) return fail(Error::format(Code::busy, "no thread can be started: %s", std::strerror(error)));
  [[maybe_unused]] auto* const the_threads = argument.release();
  started_ = true;
  pthread_setname_np(thread_, name);
  return {};
}

void QuietThread::join() noexcept {
  if (!started_) return;
  pthread_join(thread_, nullptr);
  started_ = false;
}

}  // namespace lowtide
