// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "allocator/base/bytes.hpp"
#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"

// What a trace records. The numbers are those of the file (docs/trace-format.md): they are never used again for
// something else, and a reader passes over an op that it does not know.
namespace lowtide::trace {

/// A text of the trace: a tag, a phase, an origin; 0 is none.
enum class StringId : std::uint32_t {};
/// A call stack of the trace; 0 is none.
enum class StackId : std::uint32_t {};

/// What happened. Beside each stands what the other members mean; members that are not named are 0. `name` is the tag
/// unless said otherwise, and `device` is set wherever there is one.
enum class Op : std::uint8_t {
  none = 0,
  /// The events that follow in this chunk are those of a thread. Read as TraceEvent::thread, never handed out.
  thread = 1,

  // Memory. `kind` is a Memory, `flags` has event_managed if Lowtide serves it.
  alloc = 2,            ///< address, bytes; value: the context or the stream, 0 if it is not known
  free = 3,             ///< address, bytes (0: not known); value as above
  map = 4,              ///< physical memory came behind an address: address, bytes; value: the handle
  unmap = 5,            ///< address, bytes
  out_of_memory = 6,    ///< bytes asked for; value: bytes free on the device
  context_created = 7,  ///< value: the context
  context_destroyed = 8,

  // Transitions. `name` none: all tags. What an end says of bytes: see moved().
  pause_begin = 16,
  pause_end = 17,  ///< `kind` a result; a transaction that failed has moved nothing unless its bytes say so
  resume_begin = 18,
  resume_end = 19,

  copy = 24,     ///< `kind` a Direction; address of the device, bytes; value: ns from its begin to its end
  wait = 25,     ///< it is over; `kind` a Wait; value: ns; bytes: what was waited for, if it is memory
  refusal = 26,  ///< `kind` a result; bytes: needed; value: there were; `name`: the tag

  phase = 32,         ///< `name`: the phase that begins; value: its epoch
  update_begin = 33,  ///< value: the version
  update_commit = 34,
  update_abort = 35,

  ipc_export = 40,  ///< address, bytes; `kind` a Memory
  ipc_open = 41,    ///< address, bytes; value: the PID of the exporter, 0 if it is not known
  ipc_close = 42,

  // A sample: a sample_device, and behind it, of the same thread and time, what its used bytes are made of. A reader
  // that begins in the middle of a ring takes its sums from here.
  sample_device = 48,     ///< bytes: used by all processes; value: total
  sample_tag = 49,        ///< a row for each tag: bytes: resident; value: parked; address: in backups on the host
  sample_unmanaged = 50,  ///< a row for each Memory in `kind`: bytes: allocated by this process, in no tag
  sample_others = 51,     ///< bytes: of other processes; value: how many

  shutdown = 60,  ///< the process came to its end by itself
};

/// What memory a door gave out.
enum class Memory : std::uint8_t {
  unknown = 0,
  runtime = 1,          ///< cudaMalloc, hipMalloc; whatever is behind the runtime is not told apart from the driver's
  driver = 2,           ///< cuMemAlloc
  async = 3,            ///< stream-ordered
  pool = 4,             ///< a pool made by the program
  handle = 5,           ///< a physical handle of virtual memory management
  array = 6,            ///< arrays and mipmaps: address is the handle
  managed = 7,          ///< unified memory
  host_pinned = 8,      ///< host memory that the driver allocated
  host_registered = 9,  ///< host memory of the program that the driver pinned
  slack = 10,           ///< of samples only: what extents of tags hold beyond what their blocks asked for
};

enum class Direction : std::uint8_t {
  unknown = 0,
  to_device = 1,
  to_host = 2,
  on_device = 3,
  backup_out = 4,  ///< a pause saves
  backup_in = 5,   ///< a resume loads
};

/// For what something waited.
enum class Wait : std::uint8_t {
  unknown = 0,
  room = 1,     ///< free device memory
  gate = 2,     ///< the gate was closed
  capture = 3,  ///< a stream capture or a transition came first
  other = 4,    ///< another process held a tag
  drain = 5,    ///< the devices came to rest
};

constexpr std::uint8_t event_managed = 1;

/// One thing that happened, as it lies in the file. Made by whoever records it; `time` and `generation` are filled in
/// by the recorder.
struct Event {
  static constexpr std::int8_t no_device = -1;

  Op op = Op::none;
  std::uint8_t kind = 0;  ///< a Memory, a Direction, a Wait or a result, as the op says
  std::int8_t device = no_device;
  std::uint8_t flags = 0;
  std::uint32_t generation = 0;  ///< of the chunk that it lies in
  std::uint64_t time = 0;        ///< ns of CLOCK_MONOTONIC
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;
  StringId name{};
  StackId stack{};  ///< who asked; of alloc, free, map and out_of_memory
};
static_assert(sizeof(Event) == 48 && std::is_trivially_copyable_v<Event>);

constexpr std::uint8_t kind_of(Memory memory) { return static_cast<std::uint8_t>(memory); }
constexpr std::uint8_t kind_of(Direction direction) { return static_cast<std::uint8_t>(direction); }
constexpr std::uint8_t kind_of(Wait wait) { return static_cast<std::uint8_t>(wait); }
/// A result as a kind: 0, or the Code of an error.
constexpr std::uint8_t kind_of(Code code) { return static_cast<std::uint8_t>(static_cast<std::int8_t>(code)); }
/// The result of a pause_end, resume_end or refusal: 0, or the number of a Code.
constexpr int result_of(const Event& event) { return static_cast<std::int8_t>(event.kind); }
constexpr bool is_managed(const Event& event) { return (event.flags & event_managed) != 0; }

/// What a pause or a resume did, of pause_end and resume_end; as in lowtide_report.
struct Moved {
  Bytes parked;
  Bytes kept;
  Bytes discarded;
};
constexpr Moved moved(const Event& event) { return {{event.bytes}, {event.address}, {event.value}}; }
constexpr void set_moved(Event& event, const Moved& moved) {
  event.bytes = moved.parked.value;
  event.address = moved.kept.value;
  event.value = moved.discarded.value;
}

/// False of `none`, and of what a later version may record.
bool is_known(Op op) noexcept;
const char* to_text(Op op) noexcept;          ///< "alloc", "pause_end"; "unknown" if it is none of these
const char* to_text(Memory memory) noexcept;  ///< likewise
const char* to_text(Direction direction) noexcept;
const char* to_text(Wait wait) noexcept;

}  // namespace lowtide::trace
