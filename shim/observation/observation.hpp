// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "allocator/base/quiet_thread.hpp"
#include "allocator/core/observer.hpp"
#include "allocator/policy/configuration.hpp"
#include "allocator/trace/recorder.hpp"
#include "shim/door_table.h"
#include "shim/observation/call_stacks.hpp"
#include "shim/observation/metrics.hpp"
#include "shim/observation/metrics_file.hpp"
#include "shim/observation/sampler.hpp"
#include "shim/observation/unmanaged.hpp"

namespace lowtide {

/// What is recorded of this process, in a trace and as metrics. Made when the process starts, if the configuration
/// names a file for either; never destroyed. Thread-safe; what cannot be recorded for want of host memory is left out.
class Observation final : public Observer {
 public:
  /// Null if nothing is asked for, or nothing can be had, of which a warning says why. Both outlive it.
  static std::unique_ptr<Observation> start_or_warn(const Configuration& configuration, Runtime& runtime,
                                                    Platform& platform, SymbolLookup symbol) noexcept;

  // What the vendor's own functions did, as in the door table.
  void passed(const lowtide_record& record) noexcept;
  bool releasing(lowtide_record& record) noexcept;
  /// Of plain memory of the calling thread's context.
  static lowtide_record record_of(trace::Op op, DeviceAddress address, Bytes size) noexcept {
    return {static_cast<std::uint8_t>(op), trace::kind_of(trace::Memory::driver), -1, address.value, size.value, 0};
  }

  // What Lowtide itself answered.
  void allocated(const BlockNote& block) noexcept;
  void ran_out(const TagName& tag, DeviceId device, Bytes asked) noexcept;
  /// `block` is about to be freed. If that fails, it counts as allocated once more.
  void freeing(const BlockNote& block) noexcept;

  // Observer.
  void transition_begins(Step step, const std::optional<TagName>& tag) noexcept override;
  void transition_ended(Step step, const std::optional<TagName>& tag, std::chrono::nanoseconds time,
                        const Result<TransitionReport>& report) noexcept override;
  void updated(Update step, const TagName& tag, std::uint64_t version, const Status& status) noexcept override;
  void phase_entered(const TagName& name, bool again) noexcept override;
  void waited(Wait what, std::chrono::nanoseconds time, Bytes memory) noexcept override;
  void copied(Copy direction, DeviceId device, DeviceAddress first, Bytes bytes,
              std::chrono::nanoseconds time) noexcept override;
  void context_seen(DeviceId device, ContextId context) noexcept override;
  void context_dropping(ContextId context, std::span<const BlockNote> blocks) noexcept override;
  void context_dropped(ContextId context) noexcept override;

  /// The host began to exit: the driver is not called any more, and the metrics file goes.
  void leave() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  Observation(const Configuration& configuration, Runtime& runtime, Platform& platform)
      : trace_(configuration.trace),
        metrics_settings_(configuration.metrics),
        platform_(platform),
        sampler_(runtime, platform, unmanaged_) {}
  bool start_trace(SymbolLookup symbol);
  bool start_metrics();
  bool start_timer();
  void run_timer() noexcept;

  void write(const trace::Event& event) noexcept {
    if (recorder_) recorder_->record(event);
  }
  trace::StringId name_of(const TagName& tag) noexcept {
    return recorder_ ? recorder_->intern(tag.view()) : trace::StringId{};
  }
  trace::StackId stack() noexcept { return stacks_ ? stacks_->here() : trace::StackId{}; }
  /// Of a block of ours.
  trace::Event managed_event(trace::Op op, const BlockNote& block) noexcept;
  void give(const lowtide_record& record, const std::optional<Platform::Place>& here);
  void forget_mappings(const lowtide_record& record);
  /// Of the devices that a resume did not get memory on.
  struct Missing {
    Bytes needed;
    Bytes there;
  };
  Missing missing_memory(Step step, const std::optional<TagName>& tag, const Error& error);
  void refused(const std::optional<TagName>& tag, const Error& error, const Missing& missing);

  void sample() noexcept;
  /// The same, unless that was done within `between_samples` or is being done.
  void sample_now_and_then() noexcept;
  void record_samples(const std::vector<DeviceSample>& samples);
  void introduce(const DeviceSample& sample);
  void write_metrics() noexcept;

  const TraceSettings trace_;
  const MetricsSettings metrics_settings_;
  Platform& platform_;
  Unmanaged unmanaged_;
  Sampler sampler_;
  std::unique_ptr<trace::Recorder> recorder_;
  std::optional<CallStacks> stacks_;
  std::optional<Metrics> metrics_;
  std::optional<MetricsFile> metrics_file_;
  std::atomic<bool> metrics_failure_told_{false};  ///< a full disk may have room again
  std::atomic<std::int64_t> next_sample_{0};       ///< ns of Clock
  std::atomic<std::uint64_t> introduced_{0};       ///< devices, by bit
  std::mutex phase_mutex_;
  std::optional<TagName> half_entered_;
  std::uint64_t epoch_ = 0;

  std::mutex timer_mutex_;
  std::condition_variable timer_wakes_;
  bool stopping_ = false;
  QuietThread timer_;
};

}  // namespace lowtide
