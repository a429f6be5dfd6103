// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/stream.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "backends/simulated/capture.hpp"

namespace lowtide::sim {

Task Streams::place_locked(const StreamPtr& stream, Work work) {
  Task task{++stream->submitted, {}, std::move(work)};
  if (stream->is_legacy) {
    for (const auto& other : stream->context->streams) {
      if (other != stream && other->blocking() && !other->idle()) task.after.push_back(now_locked(other));
    }
  } else if (stream->blocking() && stream->context->legacy && !stream->context->legacy->idle()) {
    task.after.push_back(now_locked(stream->context->legacy));
  }
  return task;
}

bool Streams::turn_of(const Stream& stream, const Task& task) const {
  const bool next = stream.completed + 1 == task.sequence;
  return next && std::all_of(task.after.begin(), task.after.end(), [](const Point& point) { return point.reached(); });
}

CUresult Streams::run_unlocked(std::unique_lock<std::mutex>& lock, const StreamPtr& stream, const Task& task) {
  const auto context = stream->context;
  stream->running = true;
  lock.unlock();
  auto result = context->error.load();
  if (result == CUDA_SUCCESS && !context->dead) {
    try {
      result = task.work();
    } catch (...) {
      result = CUDA_ERROR_UNKNOWN;
    }
    if (result != CUDA_SUCCESS) context->fail(result);
  }
  lock.lock();
  stream->running = false;
  stream->completed = std::max(stream->completed, task.sequence);
  if (stream->retired && stream->idle()) context->streams.erase(stream);
  monitor_.changed.notify_all();
  return result;
}

CUresult Streams::submit(const StreamPtr& stream, Work work) {
  const std::lock_guard lock(monitor_.mutex);
  return submit_locked(stream, std::move(work));
}

CUresult Streams::submit_locked(const StreamPtr& stream, Work work) {
  if (stream->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (stream->capture) return Captures::record(stream, std::move(work));
  if (const auto refused = Captures::check_legacy(stream); refused != CUDA_SUCCESS) return refused;
  if (!stream->has_thread) start_thread_locked(stream);
  stream->queue.push_back(place_locked(stream, std::move(work)));
  monitor_.changed.notify_all();
  return CUDA_SUCCESS;
}

CUresult Streams::perform(const StreamPtr& stream, const Work& work) {
  std::unique_lock lock(monitor_.mutex);
  if (stream->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (stream->capture) return Captures::check_wait(stream);
  if (const auto refused = Captures::check_legacy(stream); refused != CUDA_SUCCESS) return refused;
  const auto task = place_locked(stream, work);
  monitor_.changed.wait(lock, [&] { return stream->dead || turn_of(*stream, task); });
  if (stream->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return run_unlocked(lock, stream, task);
}

CUresult Streams::wait(const Point& point) {
  std::unique_lock lock(monitor_.mutex);
  monitor_.changed.wait(lock, [&] { return point.reached(); });
  if (!point.stream) return CUDA_SUCCESS;
  return point.stream->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : point.stream->context->error.load();
}

CUresult Streams::wait_all(const ContextPtr& context) {
  std::unique_lock lock(monitor_.mutex);
  std::vector<Point> points;
  for (const auto& stream : context->streams) points.push_back(now_locked(stream));
  for (const auto& point : points) {
    monitor_.changed.wait(lock, [&] { return point.reached(); });
  }
  return context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->error.load();
}

CUresult Streams::wait_in_stream_locked(const StreamPtr& stream, Point point) {
  if (point.reached()) return CUDA_SUCCESS;
  if (!stream->has_thread) start_thread_locked(stream);
  auto task = place_locked(stream, [] { return CUDA_SUCCESS; });
  task.after.push_back(std::move(point));
  stream->queue.push_back(std::move(task));
  monitor_.changed.notify_all();
  return CUDA_SUCCESS;
}

void Streams::kill_locked(std::unique_lock<std::mutex>& lock, const ContextPtr& context) {
  context->dead = true;
  const auto streams = context->streams;
  for (const auto& stream : streams) {
    stream->dead = true;
    stream->queue.clear();
  }
  monitor_.changed.notify_all();
  for (const auto& stream : streams) {
    monitor_.changed.wait(lock, [&] { return !stream->running; });
    stream->completed = stream->submitted;
  }
  context->streams.clear();
  context->per_thread.clear();
  context->legacy.reset();
}

void Streams::retire_locked(const StreamPtr& stream) {
  stream->retired = true;
  // One that still has work is known to its context until that is done, so that a synchronise waits for it.
  if (stream->idle()) stream->context->streams.erase(stream);
  monitor_.changed.notify_all();
}

void Streams::start_thread_locked(const StreamPtr& stream) {
  // The host's signals are not for this thread to handle.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([this, stream] { serve(stream); }).detach();
    stream->has_thread = true;
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Streams::serve(const StreamPtr& stream) {
  std::unique_lock lock(monitor_.mutex);
  const auto ready = [&] { return !stream->queue.empty() && turn_of(*stream, stream->queue.front()); };
  const auto over = [&] { return stream->dead || (stream->retired && stream->idle()); };
  while (true) {
    monitor_.changed.wait(lock, [&] { return over() || ready(); });
    if (!ready()) break;
    const auto task = std::move(stream->queue.front());
    stream->queue.pop_front();
    run_unlocked(lock, stream, task);
  }
}

}  // namespace lowtide::sim
