// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/trace/reader.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// What one process holds on one device, and the others beside it, after the event that was taken last.
struct DeviceState {
  std::uint32_t process = 0;  ///< its place in Reader::processes()
  int device = 0;
  std::string where;  ///< the same for all processes that use this device; empty if that is not known
  std::vector<Series> series;
  std::vector<std::uint64_t> bytes;   ///< by series: resident
  std::vector<std::uint64_t> parked;  ///< by series; only tags have any
  std::vector<std::uint64_t> backup;  ///< by series, on the host
  std::uint64_t used = 0;             ///< the sum of `bytes`; that of the last sample, and what changed since
  std::uint64_t total = 0;
};

/// An allocation that was not freed so far.
struct LiveBlock {
  std::uint64_t bytes = 0;
  std::uint32_t state = 0;   ///< its place in Accounting::states()
  std::uint32_t series = 0;  ///< none of it if the memory is no part of what is used on a device
  trace::StackId stack{};
  bool managed = false;
};

/// Adds up the events of a trace: at every moment, tags, what is unmanaged, other processes and what is unattributed
/// are together what is used on the device. Needs memory for the blocks that live, not for the events.
class Accounting {
 public:
  explicit Accounting(const trace::Reader& reader);

  /// Takes the next event. Gives the states that it changed, as places in states(); valid until the next call.
  std::span<const std::uint32_t> take(const trace::TraceEvent& event);
  /// The last event was taken.
  std::span<const std::uint32_t> finish();

  const DeviceState& state(std::uint32_t place) const { return *states_[place]; }
  std::size_t states() const { return states_.size(); }
  /// By address.
  const std::unordered_map<std::uint64_t, LiveBlock>& live(std::uint32_t process) const { return live_[process]; }
  /// The block that the event which was taken last has freed, if it was known.
  const std::optional<LiveBlock>& freed() const { return freed_; }
  /// Allocations that were left out of live(), since there were too many.
  std::uint64_t forgotten() const { return forgotten_; }

 private:
  struct Sample {
    std::uint32_t state = 0;
    std::uint32_t thread = 0;
    std::int64_t time = 0;
    std::uint64_t used = 0;
    std::vector<std::uint64_t> rows;  ///< by series
  };

  std::uint32_t state_of(std::uint32_t process, int device);
  std::uint32_t series_of(DeviceState& state, Series::Kind kind, std::string_view name);
  std::uint32_t tag_of(std::uint32_t place, std::uint32_t process, trace::StringId name);
  std::uint32_t unmanaged_of(std::uint32_t place, trace::Memory memory);
  void touch(std::uint32_t place);
  void change(std::uint32_t place, std::uint32_t series, std::uint64_t more, std::uint64_t less);
  void take_memory(const trace::TraceEvent& event);
  void allocate(const trace::TraceEvent& event);
  void release(const trace::TraceEvent& event);
  void transition(const trace::TraceEvent& event);
  void move(std::uint32_t place, std::uint32_t series, bool park);
  bool take_sample(const trace::TraceEvent& event);
  void take_row(const trace::TraceEvent& event);
  void end_sample();
  std::uint64_t held_beside(const DeviceState& state, std::int64_t time, std::uint64_t told) const;

  const trace::Reader& reader_;
  std::vector<std::unique_ptr<DeviceState>> states_;
  std::vector<std::map<int, std::uint32_t>> places_;                    ///< by process, then by device
  std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> tags_;  ///< by state, then by StringId
  std::vector<std::unordered_map<std::uint64_t, LiveBlock>> live_;      ///< by process, then by address
  std::vector<std::int64_t> last_seen_;                                 ///< by process: the time of its last event
  std::size_t live_count_ = 0;
  std::uint64_t forgotten_ = 0;
  std::optional<LiveBlock> freed_;
  std::optional<Sample> sample_;
  std::vector<std::uint32_t> touched_;
};

}  // namespace lowtide::tools
