// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "allocator/base/result.hpp"
#include "allocator/trace/event.hpp"
#include "allocator/trace/settings.hpp"

namespace lowtide::trace {

/// One frame of a call stack: an address of native code, or a function of Python.
struct Frame {
  std::uint64_t address = 0;
  StringId function{};
  StringId file{};
  std::uint32_t line = 0;
  bool operator==(const Frame&) const = default;
};

/// A mapped piece of a library.
struct Module {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  ///< of `start` in the file
  std::string_view path;
  std::string_view build_id;  ///< hexadecimal; "": none
};

/// A device of this process.
struct Device {
  DeviceId ordinal{};
  Bytes total;
  std::string_view uuid;
  std::string_view name;
};

/// How a recorder is doing.
struct RecorderCounts {
  std::uint64_t overwritten = 0;      ///< events that made room for newer ones
  std::uint64_t dropped = 0;          ///< events for which there was no room at all
  std::uint64_t dropped_entries = 0;  ///< strings, frames, modules and devices likewise
};

/// Writes what happens in this process into a file that is readable at any moment, also after the process was killed.
/// All calls are thread-safe, never throw, and say nothing if something cannot be recorded: it is counted, here and in
/// the file. After a fork the child's calls do nothing, whatever its parent's threads were doing, its destructor
/// included.
class Recorder {
 public:
  /// Makes the file; one that is there is replaced. Parent folders are not made. Code::config if the path is not
  /// usable, Code::refused if there is no room for the smallest file, Code::unsupported where the kernel is older
  /// than 4.14.
  static Result<std::unique_ptr<Recorder>> start(const TraceSettings& settings, std::string_view version,
                                                 std::string_view build_id) noexcept;
  /// No other thread is in a call or will begin one.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Appends `event`, or all of `events` with the same time. The first of a thread, and then one in 1,360, gets a new
  /// chunk of the file; the others take no lock and make no system call.
  void record(Event event) noexcept;
  void record(std::span<Event> events) noexcept;

  /// The id of `text`, of which 4,096 bytes count; none if there is no room for it, or it is "". Without a lock if it
  /// is known already.
  StringId intern(std::string_view text) noexcept;
  /// The id of a call stack, the innermost frame first; none if there is no room for it.
  StackId stack(std::span<const Frame> frames) noexcept;

  /// May be told again: the latest one holds.
  void module(const Module& module) noexcept;
  void device(const Device& device) noexcept;

  RecorderCounts counts() const noexcept;
  /// The file's path, as it was opened.
  const std::string& path() const noexcept;

 private:
  class State;
  explicit Recorder(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace lowtide::trace
