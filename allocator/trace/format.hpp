// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allocator/trace/event.hpp"

// What lies in a trace file, byte by byte; in words: docs/trace-format.md. Little-endian. A header, then chunks; a
// chunk holds events of one thread after the other, or entries of the dictionary. The writer has mapped the file, and
// what it wrote stays there if it is killed: each event, entry and chunk becomes valid by one store of its first word.
namespace lowtide::trace {

constexpr std::uint64_t file_magic = 0x454341525454'4c2eULL;  ///< ".LTTRACE" in the file
constexpr std::uint32_t file_version = 1;
constexpr std::uint32_t byte_order_mark = 0x01020304;

constexpr std::size_t header_bytes = 4096;
constexpr std::size_t chunk_bytes = std::size_t{64} << 10;

template <std::size_t size>
using Text = std::array<char, size>;  ///< ends with a zero; what is too long is cut

/// The first bytes of the file. `magic` is written last; what stands above `next_chunk` never changes after it.
struct FileHeader {
  std::atomic<std::uint64_t> magic;
  std::uint32_t byte_order = byte_order_mark;
  std::uint32_t version = file_version;
  std::uint32_t header_size = header_bytes;
  std::uint32_t chunk_size = chunk_bytes;
  std::uint32_t event_size = sizeof(Event);
  std::uint32_t chunk_limit = 0;  ///< the most chunks that the file may have
  std::uint64_t start_ticks = 0;  ///< when the process began, as in /proc/PID/stat: with the PID, its identity
  std::int64_t realtime = 0;      ///< ns since 1970, read together with
  std::uint64_t monotonic = 0;    ///< ns of CLOCK_MONOTONIC, the clock of all events
  std::uint32_t pid = 0;          ///< in its own PID namespace
  std::uint32_t reserved = 0;
  Text<40> boot_id{};  ///< files of the same boot share a monotonic clock
  Text<64> host{};
  Text<64> version_text{};  ///< of Lowtide
  Text<64> build_id{};
  Text<2048> command{};  ///< its words, separated by spaces

  std::atomic<std::uint64_t> next_chunk;       ///< goes up by one for each claim that is tried
  std::atomic<std::uint32_t> chunks;           ///< that the file has now
  std::atomic<std::uint32_t> full_errno;       ///< why the file could not grow to its limit; 0: it could
  std::atomic<std::uint64_t> overwritten;      ///< events that were complete, and whose chunk was used again
  std::atomic<std::uint64_t> dropped;          ///< events for which there was no chunk
  std::atomic<std::uint64_t> dropped_entries;  ///< entries for which the dictionary had no room
};
static_assert(sizeof(FileHeader) <= header_bytes && std::is_standard_layout_v<FileHeader>);

/// What a chunk is. `open` and `closed` hold events.
enum class ChunkState : std::uint32_t {
  unused = 0,
  open = 1,        ///< a thread writes there
  closed = 2,      ///< full; it may be used again
  dictionary = 3,  ///< is never used again
};

/// The first bytes of a chunk. `claim` is the generation, which goes up by one with each use, above its lowest 32
/// bits, which are a ChunkState. An event of another generation than its chunk's is not there.
struct ChunkHeader {
  std::atomic<std::uint64_t> claim;
  std::atomic<std::uint64_t> events;  ///< how many a closed one has; Op::thread does not count
  std::uint64_t reserved[2];
};
static_assert(sizeof(ChunkHeader) == 32);

constexpr std::size_t events_per_chunk = (chunk_bytes - sizeof(ChunkHeader)) / sizeof(Event);

constexpr std::uint64_t claim_word(std::uint32_t generation, ChunkState state) {
  return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(state);
}
constexpr std::uint32_t generation_of(std::uint64_t claim) { return static_cast<std::uint32_t>(claim >> 32); }
constexpr ChunkState state_of(std::uint64_t claim) {
  return static_cast<ChunkState>(static_cast<std::uint32_t>(claim));
}

/// What an entry of the dictionary is. Its id is counted from 1 by its kind: strings, frames; others have none.
enum class EntryKind : std::uint8_t {
  none = 0,
  string = 1,  ///< payload: the text
  frame = 2,   ///< payload: a FrameEntry
  module = 3,  ///< payload: a ModuleEntry
  device = 4,  ///< payload: a DeviceEntry
};

/// Before each entry. Behind the payload come zeros up to a multiple of 8.
struct EntryHeader {
  std::atomic<std::uint32_t> word;  ///< written last: payload bytes * 256 + EntryKind; 0: no entry, and none behind it
  std::uint32_t id;
};
static_assert(sizeof(EntryHeader) == 8);

/// A node of the tree of call stacks: the frame, and the id of the one that called it.
struct FrameEntry {
  std::uint32_t parent;   ///< 0: none; always below the entry's own id
  std::uint32_t line;     ///< of Python
  std::uint64_t address;  ///< of native code, in the process; 0 in Python
  StringId function;      ///< of Python, 0 in native code
  StringId file;
};
static_assert(sizeof(FrameEntry) == 24);

/// A mapped piece of a library, so that addresses can be told the names of their functions later.
struct ModuleEntry {
  std::uint64_t time;   ///< from when on it was known to be there
  std::uint64_t start;  ///< where it was mapped
  std::uint64_t end;
  std::uint64_t offset;  ///< of `start` in the file
  StringId path;
  StringId build_id;  ///< hexadecimal; none: it has none
};
static_assert(sizeof(ModuleEntry) == 40);

/// Which device an ordinal of the process was.
struct DeviceEntry {
  std::uint64_t total;  ///< bytes
  std::int32_t ordinal;
  StringId uuid;
  StringId name;
  std::uint32_t reserved;
};
static_assert(sizeof(DeviceEntry) == 24);

constexpr std::size_t longest_string = 4096;

}  // namespace lowtide::trace
