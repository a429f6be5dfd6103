// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/lanes.hpp"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

#include "allocator/trace/process_facts.hpp"

namespace lowtide::trace {

Result<std::unique_ptr<Lanes>> Lanes::make(TraceFile& file, const ThisProcess& process) {
  std::unique_ptr<Lanes> lanes(new Lanes(file, process));
  if (const int error = pthread_key_create(&lanes->key_, leave); error != 0)
    return fail(Error::format(Code::refused, "the trace needs a key for thread-local storage: %s; the process has %d",
                              std::strerror(error), PTHREAD_KEYS_MAX));
  lanes->has_key_ = true;
  return lanes;
}

Lanes::~Lanes() {
  if (has_key_) pthread_key_delete(key_);
}

void Lanes::append(std::span<Event> events) noexcept {
  auto* lane = static_cast<Lane*>(pthread_getspecific(key_));
  if (lane == nullptr) lane = adopt();
  // Not before there is a lane: one that was another thread's has later events by then.
  const auto time = monotonic_now();
  for (auto& event : events) {
    event.time = time;
    if (lane == nullptr || !make_room(*lane, time)) {
      file_.header().dropped.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    write(*lane, event);
    ++lane->events;
  }
}

Lanes::Lane* Lanes::adopt() noexcept {
  const std::lock_guard lock(mutex_);
  auto* lane = idle_;
  try {
    if (lane == nullptr) lane = &lanes_.emplace_back(Lane{*this});
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  idle_ = lane->next_idle;
  lane->next_idle = nullptr;
  lane->thread = ::gettid();
  lane->introduced = false;
  // Refused for want of memory: the next event tries again.
  if (pthread_setspecific(key_, lane) == 0) return lane;
  idle_ = lane;
  return nullptr;
}

void Lanes::leave(void* lane) noexcept {
  auto& its = *static_cast<Lane*>(lane);
  auto& owner = its.owner;
  // The child's copy of the lock may be held by a thread that it does not have.
  if (!owner.process_.is_here()) return;
  const std::lock_guard lock(owner.mutex_);
  its.next_idle = owner.idle_;
  owner.idle_ = &its;
}

bool Lanes::make_room(Lane& lane, std::uint64_t time) noexcept {
  while (!lane.introduced || lane.used == events_per_chunk) {
    if (lane.used == events_per_chunk) {
      if (lane.chunk) TraceFile::close(*lane.chunk, lane.events);
      lane.chunk = file_.claim();
      if (!lane.chunk) return false;
      lane.used = 0;
      lane.events = 0;
    }
    Event thread;
    thread.op = Op::thread;
    thread.time = time;
    thread.value = static_cast<std::uint64_t>(lane.thread);
    write(lane, thread);
    lane.introduced = true;
  }
  return true;
}

void Lanes::write(Lane& lane, const Event& event) noexcept {
  auto whole = event;
  whole.generation = lane.chunk->generation;
  constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  std::uint64_t word = 0;
  std::memcpy(&word, &whole, word_bytes);
  char* const slot = lane.chunk->content() + std::size_t{lane.used++} * sizeof(Event);
  std::memcpy(slot + word_bytes, reinterpret_cast<const char*>(&whole) + word_bytes, sizeof(Event) - word_bytes);
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(slot)).store(word, std::memory_order_release);
}

}  // namespace lowtide::trace
