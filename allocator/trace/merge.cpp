// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/merge.hpp"

#include <algorithm>
#include <memory>
#include <tuple>

#include "allocator/trace/chunk_cursor.hpp"

namespace lowtide::trace {
namespace {

struct Start {
  std::int64_t time;
  std::uint32_t process;
  const ChunkPlace* place;
};

/// A chunk that is being gone through; `order` is that of the starts.
struct Active {
  std::int64_t time;
  std::size_t order;
  std::uint32_t process;
  std::unique_ptr<ChunkCursor> cursor;

  /// For a heap whose first is the earliest.
  static bool is_later(const Active& a, const Active& b) {
    return std::tie(a.time, a.order) > std::tie(b.time, b.order);
  }
};

class Merge {
 public:
  Merge(std::span<const MergeInput> inputs, DamageList& damage) : inputs_(inputs), damage_(damage) {
    for (std::uint32_t process = 0; process < inputs.size(); ++process) {
      for (const auto& place : inputs[process].chunks) add(process, place);
    }
    std::stable_sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) { return a.time < b.time; });
  }

  void run(const std::function<void(const TraceEvent&)>& visit) {
    for (;;) {
      activate();
      if (heap_.empty()) return;
      std::pop_heap(heap_.begin(), heap_.end(), Active::is_later);
      auto& first = heap_.back();
      visit({first.cursor->event(), first.time, first.process, first.cursor->thread()});
      advance(first);
    }
  }

 private:
  std::int64_t time_of(std::uint32_t process, const Event& event) const {
    return static_cast<std::int64_t>(event.time + inputs_[process].to_realtime);
  }

  void add(std::uint32_t process, const ChunkPlace& place) {
    if (state_of(place.claim) == ChunkState::dictionary) return;
    Event event;
    inputs_[process].input.read(place.offset + sizeof(ChunkHeader), &event, sizeof event);
    // A chunk whose begin is not readable is looked into at once.
    const bool readable = event.op != Op::none && event.generation == generation_of(place.claim);
    starts_.push_back({readable ? time_of(process, event) : INT64_MIN, process, &place});
  }

  /// Opens the chunks that may hold an event before the next one of those that are open.
  void activate() {
    while (next_ < starts_.size() && (heap_.empty() || starts_[next_].time <= heap_.front().time)) {
      const auto& start = starts_[next_];
      heap_.push_back({0, next_, start.process,
                       std::make_unique<ChunkCursor>(inputs_[start.process].input, *start.place, damage_)});
      ++next_;
      advance(heap_.back());
    }
  }

  /// The last of the heap's memory, which is not in the heap, goes to its next event and into the heap.
  void advance(Active& active) {
    if (!active.cursor->next()) return heap_.pop_back();
    active.time = time_of(active.process, active.cursor->event());
    std::push_heap(heap_.begin(), heap_.end(), Active::is_later);
  }

  std::span<const MergeInput> inputs_;
  DamageList& damage_;
  std::vector<Start> starts_;
  std::size_t next_ = 0;
  std::vector<Active> heap_;
};

}  // namespace

void merge(std::span<const MergeInput> inputs, DamageList& damage,
           const std::function<void(const TraceEvent&)>& visit) {
  Merge(inputs, damage).run(visit);
}

}  // namespace lowtide::trace
