// SPDX-License-Identifier: Apache-2.0
#include "tests/hazards/other_thread.hpp"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

namespace hazards {
namespace {

constexpr std::chrono::milliseconds look_again{1};
constexpr int looks_until_sure = 10;

/// How often the thread gave up the processor of its own will, if it sleeps now; else -1.
long sleeps_of(pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(thread) + "/status");
  bool asleep = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("State:", 0) == 0) asleep = line.find('S', 6) != std::string::npos;
    if (asleep && line.rfind("voluntary_ctxt_switches:", 0) == 0) return std::stol(line.substr(24));
  }
  return -1;
}

}  // namespace

OtherThread::OtherThread(std::function<void()> body)
    : thread_([this, body = std::move(body)] {
        id_ = ::gettid();
        try {
          body();
        } catch (...) {
          thrown_ = std::current_exception();
        }
        done_ = true;
      }) {}

OtherThread::~OtherThread() {
  if (thread_.joinable()) thread_.join();
}

void OtherThread::wait_until_asleep_or_done() const {
  wait_until([this] { return id_ != 0; });
  wait_until_asleep_or(id_, [this] { return done_.load(); });
}

void OtherThread::join() {
  if (thread_.joinable()) thread_.join();
  if (thrown_) std::rethrow_exception(thrown_);
}

void wait_until_asleep_or(pid_t thread, const std::function<bool()>& happened) {
  // A thread that sleeps for good does not wake between two looks.
  long before = -1;
  for (int same = 0; same < looks_until_sure && !happened();) {
    const long now = sleeps_of(thread);
    same = now >= 0 && now == before ? same + 1 : 0;
    before = now;
    std::this_thread::sleep_for(look_again);
  }
}

void wait_until(const std::function<bool()>& happened) {
  while (!happened()) std::this_thread::sleep_for(look_again);
}

}  // namespace hazards
