// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.hpp"
#include "allocator/trace/event.hpp"

namespace lowtide::trace {

// Texts are UTF-8, with a '?' in the place of each byte that was not, and may hold any character.

/// A file's process, from its header.
struct TracedProcess {
  std::string path;  ///< of the file
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;  ///< as in /proc/PID/stat
  std::string host;
  std::string command;
  std::string version;
  std::string build_id;
  std::int64_t start = 0;  ///< when it began to record; ns since 1970
  std::uint64_t overwritten = 0;
  std::uint64_t dropped = 0;
  std::uint64_t dropped_entries = 0;
  int full_errno = 0;  ///< why the file could not grow to its size; 0: it could
};

struct TracedFrame {
  std::uint64_t address = 0;  ///< of native code, 0 in Python
  std::string_view function;  ///< of Python
  std::string_view file;
  std::uint32_t line = 0;
};

struct TracedModule {
  std::int64_t time = 0;  ///< ns since 1970; later ones replace what they overlap
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::string_view path;
  std::string_view build_id;
};

struct TracedDevice {
  int ordinal = 0;
  Bytes total;
  std::string_view uuid;
  std::string_view name;
};

/// A piece of a file that could not be read. Everything else was.
struct Damage {
  std::string path;
  std::uint64_t offset = 0;
  std::string what;  ///< for people
};

/// An event among those of all files.
struct TraceEvent {
  Event event;
  std::int64_t time = 0;      ///< ns since 1970
  std::uint32_t process = 0;  ///< its place in processes()
  std::uint32_t thread = 0;   ///< its id; 0: not known
};

/// Reads the files of one or more processes as one trace. A file may be cut short, damaged, or made by somebody who
/// means harm, and its process may still write to it: what can be read is read, and the rest is told. Needs memory for
/// the dictionaries and a few KiB for each thread, not for the events. Used by one thread at a time.
class Reader {
 public:
  /// Reads headers and dictionaries. Code::invalid if one of them cannot be opened, or is not a trace of this version.
  static Result<Reader> open(std::span<const std::string> paths);
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  std::span<const TracedProcess> processes() const noexcept;

  // Of a process, as an index into processes(). The views live as long as the reader.
  /// "" if there is no such string.
  std::string_view text(std::uint32_t process, StringId id) const noexcept;
  /// The innermost frame first; empty if there is no such stack.
  std::vector<TracedFrame> stack(std::uint32_t process, StackId id) const;
  /// In the order in which they were told.
  std::vector<TracedModule> modules(std::uint32_t process) const;
  /// One for each ordinal that was told.
  std::vector<TracedDevice> devices(std::uint32_t process) const;

  /// Calls `visit` with every event that is there, in the order of time; those of one thread in the order in which it
  /// recorded them. Can be called again.
  void for_each(const std::function<void(const TraceEvent&)>& visit);

  /// What open and for_each could not read, at most 100 of them.
  std::span<const Damage> damage() const noexcept;

 private:
  class State;
  explicit Reader(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace lowtide::trace
