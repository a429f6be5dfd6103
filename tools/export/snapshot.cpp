// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "tools/export/exports.hpp"
#include "tools/export/pickle.hpp"
#include "tools/trace/accounting.hpp"
#include "tools/trace/load.hpp"
#include "tools/trace/sites.hpp"

// The shape is that of torch/csrc/cuda/memory_snapshot.cpp: a segment for each block, since below PyTorch's allocator
// each allocation of the driver is one. What a pause takes away and a resume brings back is an unmapped segment.
namespace lowtide::tools {
namespace {

using trace::Op;
using trace::TraceEvent;

class Writer {
 public:
  Writer(trace::Reader& reader, std::uint32_t process, Output& output)
      : reader_(reader), process_(process), frames_(reader, process), pickle_(output) {}

  void write() {
    pickle_.begin_dictionary();
    pickle_.key("device_traces");
    pickle_.begin_list();
    const auto last = last_device();
    for (int device = 0; device <= last; ++device) trace_of(device);
    pickle_.end_list();
    pickle_.key("segments");
    segments();
    pickle_.key("allocator_settings");
    pickle_.begin_dictionary();
    pickle_.pair("recorded_by", "lowtide");
    pickle_.end_dictionary();
    pickle_.end_dictionary();
    pickle_.finish();
  }

 private:
  int last_device() {
    int last = 0;
    for_each_event(reader_, [&](const TraceEvent& traced) {
      if (traced.process == process_) last = std::max<int>(last, traced.event.device);
    });
    return last;
  }

  void frames(trace::StackId stack) {
    pickle_.begin_list();
    for (const auto& place : frames_.places(stack)) {
      pickle_.begin_dictionary();
      pickle_.pair("name", place.function);
      pickle_.pair("filename", place.file);
      pickle_.pair("line", place.line);
      pickle_.end_dictionary();
    }
    pickle_.end_list();
  }

  void action(const char* what, std::uint64_t address, const LiveBlock& block, std::int64_t time) {
    pickle_.begin_dictionary();
    pickle_.pair("action", what);
    pickle_.pair("addr", address);
    pickle_.pair("size", block.bytes);
    pickle_.pair("stream", 0);
    pickle_.pair("time_us", static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0)) / 1000);
    pickle_.key("frames");
    frames(block.stack);
    pickle_.end_dictionary();
  }

  bool is_of(const Accounting& accounting, const LiveBlock& block, int device) const {
    return accounting.state(block.state).device == device;
  }

  /// Before the event is taken, since it moves what is parked.
  void transition(const Accounting& accounting, const TraceEvent& traced, int device) {
    const bool park = traced.event.op == Op::pause_end;
    if (trace::result_of(traced.event) != 0) return;
    const auto tag = reader_.text(process_, traced.event.name);
    for (const auto& [address, block] : accounting.live(process_)) {
      if (!block.managed || !is_of(accounting, block, device)) continue;
      if (!tag.empty() && accounting.state(block.state).series[block.series].name != tag) continue;
      const bool changes = park ? parked_.insert(address).second : parked_.erase(address) == 1;
      if (changes) action(park ? "segment_unmap" : "segment_map", address, block, traced.time);
    }
  }

  void happened(const Accounting& accounting, const TraceEvent& traced, int device) {
    const auto address = traced.event.address;
    if (traced.event.op == Op::alloc && traced.event.device == device) {
      const auto found = accounting.live(process_).find(address);
      if (found == accounting.live(process_).end()) return;
      action("segment_alloc", address, found->second, traced.time);
      action("alloc", address, found->second, traced.time);
    }
    if (accounting.freed() && is_of(accounting, *accounting.freed(), device)) {
      for (const char* what : {"free_requested", "free_completed"})
        action(what, address, *accounting.freed(), traced.time);
      const bool was_parked = parked_.erase(address) == 1;
      if (!was_parked) action("segment_free", address, *accounting.freed(), traced.time);
    }
    if (traced.event.op == Op::out_of_memory && traced.event.device == device)
      action("oom", address, {traced.event.bytes, 0, 0, traced.event.stack, false}, traced.time);
  }

  void trace_of(int device) {
    Accounting accounting(reader_);
    parked_.clear();
    pickle_.begin_list();
    for_each_event(reader_, [&](const TraceEvent& traced) {
      if (traced.process != process_) return;
      accounting.take(traced);
      happened(accounting, traced, device);
      if (traced.event.op == Op::pause_end || traced.event.op == Op::resume_end) transition(accounting, traced, device);
    });
    pickle_.end_list();
    for (const auto& [address, block] : accounting.live(process_)) {
      if (is_of(accounting, block, device)) left_.emplace(address, Left{device, block, parked_.contains(address)});
    }
  }

  void segments() {
    pickle_.begin_list();
    for (const auto& [address, left] : left_) {
      const auto bytes = left.parked ? 0 : left.block.bytes;
      pickle_.begin_dictionary();
      pickle_.pair("device", static_cast<std::uint64_t>(left.device));
      pickle_.pair("address", address);
      for (const char* what : {"total_size", "allocated_size", "active_size", "requested_size"})
        pickle_.pair(what, bytes);
      pickle_.pair("stream", 0);
      pickle_.pair("segment_type", "large");
      pickle_.key("is_expandable");
      pickle_.boolean(left.block.managed);
      pickle_.key("frames");
      frames(left.block.stack);
      pickle_.key("blocks");
      block_list(address, left.block, bytes);
      pickle_.end_dictionary();
    }
    pickle_.end_list();
  }

  void block_list(std::uint64_t address, const LiveBlock& block, std::uint64_t bytes) {
    pickle_.begin_list();
    if (bytes > 0) {
      pickle_.begin_dictionary();
      pickle_.pair("address", address);
      pickle_.pair("size", bytes);
      pickle_.pair("requested_size", bytes);
      pickle_.pair("state", "active_allocated");
      pickle_.key("frames");
      frames(block.stack);
      pickle_.end_dictionary();
    }
    pickle_.end_list();
  }

  struct Left {
    int device = 0;
    LiveBlock block;
    bool parked = false;
  };

  trace::Reader& reader_;
  const std::uint32_t process_;
  const Frames frames_;
  Pickle pickle_;
  std::set<std::uint64_t> parked_;      ///< addresses of the device that is written
  std::map<std::uint64_t, Left> left_;  ///< what lives at the end, by address
};

}  // namespace

void export_snapshot(trace::Reader& reader, std::uint32_t process, Output& output) {
  Writer(reader, process, output).write();
}

}  // namespace lowtide::tools
