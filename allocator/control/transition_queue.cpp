// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/transition_queue.hpp"

#include <poll.h>

namespace lowtide {
namespace {

// Closed at both ends; a client that only ended its own sending still wants the answer.
bool is_gone(int socket) noexcept {
  pollfd state{socket, 0, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

Status TransitionQueue::submit(int socket, const Request& request) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return fail(Code::busy, "the process is ending");
  if (waiting_.size() >= most_waiting) {
    return fail(Error::format(Code::busy, "%zu transitions are waiting already", waiting_.size()));
  }
  if (!thread_.started()) {
    if (auto status = thread_.start("lowtide-transit", [this] { work(); }); !status) return status;
  }
  waiting_.push_back({socket, request});
  ::sem_post(&work_);
  return {};
}

void TransitionQueue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ::sem_post(&work_);
  }
  thread_.join();
  for (const auto& job : waiting_) {
    try {
      send_all(job.socket, error_answer(Error(Code::busy, "the process is ending")), std::chrono::milliseconds{0});
    } catch (...) {
      // Out of host memory: the client sees the connection end without an answer.
    }
    fds_.close(job.socket);
  }
  waiting_.clear();
}

void TransitionQueue::work() noexcept {
  while (const auto job = next_job()) carry_out(*job);
}

std::optional<TransitionQueue::Job> TransitionQueue::next_job() noexcept {
  while (::sem_wait(&work_) != 0) {
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) return std::nullopt;
  Job job = std::move(waiting_.front());
  waiting_.pop_front();
  return job;
}

void TransitionQueue::carry_out(const Job& job) noexcept {
  // Who gave up while waiting does not want the transition any more.
  if (!is_gone(job.socket)) {
    ProgressWriter progress(job.socket);
    std::string answer;
    try {
      answer = answer_to(job, progress);
      send_all(job.socket, progress.unsent() + answer, client_timeout_);
    } catch (...) {
      // Out of host memory: the client sees the connection end without an answer.
    }
  }
  fds_.close(job.socket);
}

std::string TransitionQueue::answer_to(const Job& job, ProgressWriter& progress) {
  if (std::holds_alternative<TrimRequest>(job.request)) {
    const auto trimmed = controlled_.trim();
    return trimmed ? trim_answer(*trimmed) : error_answer(trimmed.error());
  }
  if (const auto* phase = std::get_if<PhaseRequest>(&job.request)) {
    const auto part = phase->first_pauses ? PhasePart::first_pauses : PhasePart::all;
    const auto entered = controlled_.enter_phase(phase->name, part, true);
    return entered ? ok_answer() : error_answer(entered.error());
  }
  const ProgressSink sink = [&progress](const Progress& now) { progress.write(now); };
  const auto* pause = std::get_if<PauseRequest>(&job.request);
  const auto* resume = std::get_if<ResumeRequest>(&job.request);
  const auto report = pause != nullptr ? controlled_.pause(pause->tag, pause->hold, pause->timeout, sink,
                                                           [&job] { return is_gone(job.socket); })
                                       : controlled_.resume(resume->tag, sink);
  return report ? report_answer(*report) : error_answer(report.error());
}

}  // namespace lowtide
