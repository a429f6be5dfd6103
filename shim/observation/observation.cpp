// SPDX-License-Identifier: Apache-2.0
// When something is recorded: start, timer, end, samples.
#include "shim/observation/observation.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "allocator/base/log.hpp"
#include "allocator/trace/trace_path.hpp"

namespace lowtide {
namespace {

/// Two samples that an allocation asks for. A call of the driver's costs some tens of microseconds.
constexpr std::chrono::milliseconds between_samples{10};

}  // namespace

std::unique_ptr<Observation> Observation::start_or_warn(const Configuration& configuration, Runtime& runtime,
                                                        Platform& platform, SymbolLookup symbol) noexcept {
  try {
    std::unique_ptr<Observation> made(new Observation(configuration, runtime, platform));
    const bool traces = made->start_trace(symbol);
    const bool tells = made->start_metrics();
    if ((traces || tells) && made->start_timer()) return made;
  } catch (const std::bad_alloc&) {
    log(LogLevel::warning, "nothing is recorded: the host has no memory for it");
  }
  return nullptr;
}

bool Observation::start_trace(SymbolLookup symbol) {
  if (trace_.file.empty()) return false;
  auto recorder = trace::Recorder::start(trace_, LOWTIDE_VERSION, LOWTIDE_BUILD_ID);
  if (!recorder) {
    log(LogLevel::warning, "no trace is recorded: %s", recorder.error().message());
    return false;
  }
  recorder_ = std::move(*recorder);
  stacks_.emplace(*recorder_, trace_.stacks, symbol);
  return true;
}

bool Observation::start_metrics() {
  if (metrics_settings_.file.empty()) return false;
  auto path = trace::expand_path(metrics_settings_.file);
  if (!path) {
    log(LogLevel::warning, "no metrics are written: %s", path.error().message());
    return false;
  }
  metrics_.emplace(::getpid());
  metrics_file_.emplace(std::move(*path));
  return true;
}

bool Observation::start_timer() {
  const auto status = timer_.start("lowtide-trace", [this] { run_timer(); });
  if (!status) log(LogLevel::warning, "nothing is recorded: %s", status.error().message());
  return status.has_value();
}

void Observation::run_timer() noexcept {
  constexpr std::chrono::milliseconds never = std::chrono::hours{24};
  const auto samples_every = recorder_ && trace_.interval.count() > 0 ? trace_.interval : never;
  const auto tells_every = metrics_ ? metrics_settings_.interval : never;
  auto next_sample = Clock::now() + samples_every;
  auto next_metrics = Clock::now() + tells_every;
  std::unique_lock lock(timer_mutex_);
  for (;;) {
    timer_wakes_.wait_until(lock, std::min(next_sample, next_metrics), [this] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    const auto now = Clock::now();
    const bool tells = now >= next_metrics;
    sample();
    if (tells) {
      write_metrics();
      next_metrics = now + tells_every;
    }
    if (now >= next_sample) next_sample = now + samples_every;
    lock.lock();
  }
}

void Observation::leave() noexcept {
  {
    const std::lock_guard lock(timer_mutex_);
    stopping_ = true;
  }
  timer_wakes_.notify_all();
  sampler_.stop();
  trace::Event event;
  event.op = trace::Op::shutdown;
  write(event);
  if (metrics_file_) metrics_file_->remove();
}

void Observation::sample() noexcept {
  try {
    auto samples = sampler_.take();
    next_sample_.store((Clock::now() + between_samples).time_since_epoch().count(), std::memory_order_relaxed);
    record_samples(samples);
    if (metrics_ && !samples.empty()) metrics_->sampled(std::move(samples));
  } catch (const std::bad_alloc&) {
  }
}

void Observation::sample_now_and_then() noexcept {
  const auto now = Clock::now();
  if (!recorder_ || now.time_since_epoch().count() < next_sample_.load(std::memory_order_relaxed)) return;
  next_sample_.store((now + between_samples).time_since_epoch().count(), std::memory_order_relaxed);
  try {
    record_samples(sampler_.try_to_take());
  } catch (const std::bad_alloc&) {
  }
}

void Observation::record_samples(const std::vector<DeviceSample>& samples) {
  if (!recorder_) return;
  for (const auto& sample : samples) {
    introduce(sample);
    std::vector<trace::Event> events;
    const auto add = [&](trace::Op op, Bytes bytes, std::uint64_t value) -> trace::Event& {
      trace::Event event;
      event.op = op;
      event.device = static_cast<std::int8_t>(index_of(sample.device));
      event.bytes = bytes.value;
      event.value = value;
      return events.emplace_back(event);
    };
    add(trace::Op::sample_device, sample.memory.total - sample.memory.free, sample.memory.total.value);
    for (const auto& tag : sample.tags) {
      auto& row = add(trace::Op::sample_tag, tag.resident, tag.parked.value);
      row.address = tag.backup.value;
      row.name = name_of(tag.tag);
    }
    for (std::size_t i = 0; i < sample.unmanaged.size(); ++i) {
      if (sample.unmanaged[i].value > 0)
        add(trace::Op::sample_unmanaged, sample.unmanaged[i], 0).kind = static_cast<std::uint8_t>(i);
    }
    if (sample.slack.value > 0)
      add(trace::Op::sample_unmanaged, sample.slack, 0).kind = trace::kind_of(trace::Memory::slack);
    if (sample.others.processes > 0) add(trace::Op::sample_others, sample.others.bytes, sample.others.processes);
    recorder_->record(std::span(events));
  }
}

void Observation::introduce(const DeviceSample& sample) {
  const auto bit = std::uint64_t{1} << (index_of(sample.device) % 64);
  if ((introduced_.fetch_or(bit) & bit) != 0) return;
  recorder_->device(
      {sample.device, sample.memory.total, platform_.key_of(sample.device), platform_.device_name(sample.device)});
}

void Observation::write_metrics() noexcept {
  if (!metrics_) return;
  try {
    if (recorder_) {
      const auto counts = recorder_->counts();
      metrics_->lost(counts.dropped, counts.overwritten);
    }
    if (const auto status = metrics_file_->replace(metrics_->text()); !status) {
      if (!metrics_failure_told_.exchange(true)) log(LogLevel::warning, "%s", status.error().message());
    }
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace lowtide
