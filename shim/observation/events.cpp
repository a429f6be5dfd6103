// SPDX-License-Identifier: Apache-2.0
// What is recorded: memory, and what the core tells.
#include <new>

#include "shim/observation/observation.hpp"

namespace lowtide {
namespace {

using trace::Event;
using trace::Memory;
using trace::Op;

Event event_of(Op op, DeviceId device) noexcept {
  Event event;
  event.op = op;
  event.device = static_cast<std::int8_t>(index_of(device));
  return event;
}

Event event_of(Op op) noexcept {
  Event event;
  event.op = op;
  return event;
}

Event event_of(Op op, std::uint64_t address, const Unmanaged::Piece& piece) noexcept {
  Event event = event_of(op, piece.device);
  event.kind = trace::kind_of(piece.kind);
  event.address = address;
  event.bytes = piece.bytes.value;
  event.value = piece.value;
  return event;
}

/// What dies with its context, at the latest.
bool belongs_to_context(Memory kind) noexcept {
  return kind != Memory::async && kind != Memory::pool && kind != Memory::handle;
}

std::uint64_t ns_of(std::chrono::nanoseconds time) noexcept { return static_cast<std::uint64_t>(time.count()); }

trace::Wait wait_of(Observer::Wait what) noexcept {
  switch (what) {
    case Observer::Wait::room: return trace::Wait::room;
    case Observer::Wait::gate: return trace::Wait::gate;
    case Observer::Wait::capture: return trace::Wait::capture;
    case Observer::Wait::other: return trace::Wait::other;
    case Observer::Wait::drain: return trace::Wait::drain;
  }
  return trace::Wait::unknown;
}

Op op_of(Observer::Update step) noexcept {
  switch (step) {
    case Observer::Update::begin: return Op::update_begin;
    case Observer::Update::commit: return Op::update_commit;
    case Observer::Update::abort: return Op::update_abort;
  }
  return Op::none;
}

/// A note that cannot be made is left out.
template <class Body>
void noting(Body body) noexcept {
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

void Observation::passed(const lowtide_record& record) noexcept {
  noting([&] {
    const auto here = platform_.current();
    const DeviceId device{record.device >= 0 ? record.device : here ? here->device : int{Event::no_device}};
    const auto op = static_cast<Op>(record.op);
    if (op == Op::alloc) return give(record, here);
    auto event = event_of(op, device);
    event.kind = record.kind;
    event.address = record.address;
    event.bytes = record.bytes;
    event.value = record.value;
    if (op == Op::map) unmanaged_.map({{record.address}, {record.bytes}}, record.value);
    if (op == Op::map || op == Op::out_of_memory) event.stack = stack();
    if (op == Op::out_of_memory) {
      event.value = sampler_.free_memory(device).value;
      if (metrics_) metrics_->out_of_memory(device);
    }
    write(event);
    if (op == Op::unmap) forget_mappings(record);
  });
}

void Observation::give(const lowtide_record& record, const std::optional<Platform::Place>& here) {
  const auto kind = static_cast<Memory>(record.kind);
  // One more reference to what is known.
  if (kind == Memory::handle && record.bytes == 0) return unmanaged_.retain(record.address);
  Unmanaged::Piece piece{kind, DeviceId{record.device}, Bytes{record.bytes}, {}, record.value};
  if (record.device < 0) piece.device = DeviceId{here ? here->device : int{Event::no_device}};
  if (here && belongs_to_context(kind)) {
    piece.context = here->context;
    piece.value = here->context.value;
  }
  unmanaged_.add(record.address, piece);
  auto event = event_of(Op::alloc, record.address, piece);
  if (is_on_device(kind)) event.stack = stack();
  write(event);
  sample_now_and_then();
}

bool Observation::releasing(lowtide_record& record) noexcept {
  const auto kind = static_cast<Memory>(record.kind);
  bool known = false;
  noting([&] {
    const auto piece =
        kind == Memory::handle ? unmanaged_.release(record.address) : unmanaged_.remove(kind, record.address);
    if (!piece) return;
    known = true;
    write(event_of(Op::free, record.address, *piece));
    record.op = static_cast<std::uint8_t>(Op::alloc);
    record.kind = trace::kind_of(piece->kind);
    record.device = static_cast<std::int16_t>(index_of(piece->device));
    record.bytes = piece->bytes.value;
    record.value = piece->value;
  });
  return known;
}

void Observation::forget_mappings(const lowtide_record& record) {
  for (const auto& gone : unmanaged_.unmap({{record.address}, {record.bytes}}))
    write(event_of(Op::free, gone.address, gone.piece));
}

Event Observation::managed_event(Op op, const BlockNote& block) noexcept {
  auto event = event_of(op, block.device);
  event.kind = trace::kind_of(platform_.vendor() == LOWTIDE_HIP ? Memory::runtime : Memory::driver);
  event.flags = trace::event_managed;
  event.address = block.range.start.value;
  event.bytes = block.range.size.value;
  event.value = block.context.value;
  event.name = name_of(block.tag);
  return event;
}

void Observation::allocated(const BlockNote& block) noexcept {
  auto event = managed_event(Op::alloc, block);
  event.stack = stack();
  write(event);
}

void Observation::freeing(const BlockNote& block) noexcept { write(managed_event(Op::free, block)); }

void Observation::ran_out(const TagName& tag, DeviceId device, Bytes asked) noexcept {
  noting([&] {
    auto event = event_of(Op::out_of_memory, device);
    event.flags = trace::event_managed;
    event.bytes = asked.value;
    event.value = sampler_.free_memory(device).value;
    event.name = name_of(tag);
    event.stack = stack();
    write(event);
    if (metrics_) metrics_->out_of_memory(device);
  });
}

void Observation::transition_begins(Step step, const std::optional<TagName>& tag) noexcept {
  sample();
  auto event = event_of(step == Step::pause ? Op::pause_begin : Op::resume_begin);
  if (tag) event.name = name_of(*tag);
  write(event);
}

void Observation::transition_ended(Step step, const std::optional<TagName>& tag, std::chrono::nanoseconds time,
                                   const Result<TransitionReport>& report) noexcept {
  auto event = event_of(step == Step::pause ? Op::pause_end : Op::resume_end);
  if (tag) event.name = name_of(*tag);
  if (report)
    trace::set_moved(event, {report->parked, report->kept, report->discarded});
  else
    event.kind = trace::kind_of(report.error().code());
  write(event);
  noting([&] {
    if (!report) refused(tag, report.error(), missing_memory(step, tag, report.error()));
    if (metrics_) metrics_->transition(step, tag ? std::string(tag->view()) : "all", time, report);
  });
  sample();
  write_metrics();
}

Observation::Missing Observation::missing_memory(Step step, const std::optional<TagName>& tag, const Error& error) {
  if (step != Step::resume || error.code() != Code::device_memory) return {};
  Missing missing;
  for (const auto& device : sampler_.take()) {
    Bytes needed;
    for (const auto& row : device.tags) {
      if (!tag || row.tag == *tag) needed += row.parked;
    }
    missing.needed += needed;
    if (needed.value > 0) missing.there += device.memory.free;
  }
  return missing;
}

void Observation::refused(const std::optional<TagName>& tag, const Error& error, const Missing& missing) {
  auto event = event_of(Op::refusal);
  event.kind = trace::kind_of(error.code());
  event.bytes = missing.needed.value;
  event.value = missing.there.value;
  if (tag) event.name = name_of(*tag);
  write(event);
  if (metrics_) metrics_->refused(error);
}

void Observation::updated(Update step, const TagName& tag, std::uint64_t version, const Status& status) noexcept {
  if (!status) return noting([&] { refused(tag, status.error(), {}); });
  auto event = event_of(op_of(step));
  event.name = name_of(tag);
  event.value = version;
  write(event);
}

void Observation::phase_entered(const TagName& name, bool again) noexcept {
  auto event = event_of(Op::phase);
  {
    const std::lock_guard lock(phase_mutex_);
    const bool is_known = half_entered_ == name;
    half_entered_ = again ? std::optional(name) : std::nullopt;
    if (is_known) return;
    event.value = ++epoch_;
  }
  event.name = name_of(name);
  write(event);
  noting([&] {
    if (metrics_) metrics_->phase(std::string(name.view()));
  });
  sample();
}

void Observation::waited(Wait what, std::chrono::nanoseconds time, Bytes memory) noexcept {
  auto event = event_of(Op::wait);
  event.kind = trace::kind_of(wait_of(what));
  event.bytes = memory.value;
  event.value = ns_of(time);
  write(event);
  noting([&] {
    if (metrics_) metrics_->waited(what, time);
  });
}

void Observation::copied(Copy direction, DeviceId device, DeviceAddress first, Bytes bytes,
                         std::chrono::nanoseconds time) noexcept {
  auto event = event_of(Op::copy, device);
  event.kind = trace::kind_of(direction == Copy::out ? trace::Direction::backup_out : trace::Direction::backup_in);
  event.address = first.value;
  event.bytes = bytes.value;
  event.value = ns_of(time);
  write(event);
}

void Observation::context_seen(DeviceId device, ContextId context) noexcept {
  auto event = event_of(Op::context_created, device);
  event.value = context.value;
  write(event);
  sample();
}

void Observation::context_dropping(ContextId context, std::span<const BlockNote> blocks) noexcept {
  for (const auto& block : blocks) freeing(block);
  noting([&] {
    for (const auto& gone : unmanaged_.remove_all_of(context)) write(event_of(Op::free, gone.address, gone.piece));
  });
  auto event = event_of(Op::context_destroyed);
  event.value = context.value;
  write(event);
}

void Observation::context_dropped(ContextId /*context*/) noexcept { sampler_.wait_until_idle(); }

}  // namespace lowtide
