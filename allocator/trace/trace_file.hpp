// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/base/file_identity.hpp"
#include "allocator/base/result.hpp"
#include "allocator/base/unique_fd.hpp"
#include "allocator/trace/format.hpp"

namespace lowtide::trace {

/// A chunk that was claimed, of which its claimer is the only writer.
struct Chunk {
  ChunkHeader* header = nullptr;
  std::uint32_t generation = 0;

  char* content() const noexcept { return reinterpret_cast<char*>(header) + sizeof(ChunkHeader); }
};

/// Makes a file longer, with all of its space. A test puts its own in its place.
class FileGrowth {
 public:
  virtual ~FileGrowth() = default;
  /// 0, or an errno. Bytes from `offset` on have space behind them then, and a write to them in mapped memory cannot
  /// fail.
  virtual int reserve(int fd, off_t offset, off_t bytes) noexcept;
};

/// A trace file that this process writes: mapped, growing, its chunks handed out. Thread-safe, but not for a fork
/// child.
class TraceFile {
 public:
  /// Maps `fd`, a new and empty file, with a header that names the process. `size` is the limit. Code::refused where
  /// not even the first chunks have room.
  static Result<std::unique_ptr<TraceFile>> make(UniqueFd fd, Bytes size, std::string_view version,
                                                 std::string_view build_id, FileGrowth& growth);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// A chunk for one thread's events: unused, or the oldest that is closed. Nothing if all are in use.
  std::optional<Chunk> claim() noexcept;
  /// The chunk is full, or done with; it has `events` of them.
  static void close(const Chunk& chunk, std::uint64_t events) noexcept;
  /// A chunk for entries of the dictionary, blank, which stays one; for one thread at a time. Nothing if all are in
  /// use, or the dictionary has its share, a quarter of the file.
  std::optional<Chunk> claim_for_dictionary() noexcept;

  FileHeader& header() noexcept { return *reinterpret_cast<FileHeader*>(memory_); }

 private:
  TraceFile(UniqueFd fd, char* memory, std::size_t bytes, FileGrowth& growth) noexcept;
  void introduce(std::uint32_t chunk_limit, std::string_view version, std::string_view build_id) noexcept;
  ChunkHeader& chunk(std::uint64_t number) noexcept;
  /// Whether the file has chunk `number`, after growing if it must. If it cannot, `limit_` is what it has.
  bool has(std::uint64_t number) noexcept;
  /// One step towards `limit` chunks, smaller where there is no room for more. 0, or an errno.
  int grow(std::uint32_t limit) noexcept;

  UniqueFd fd_;
  FileIdentity identity_;
  char* const memory_;
  const std::size_t bytes_;  ///< mapped; what lies behind the end of the file is not touched
  FileGrowth& growth_;
  std::mutex mutex_;                     ///< of growing
  std::atomic<std::uint32_t> grown_{0};  ///< how many chunks have space
  std::atomic<std::uint32_t> limit_;     ///< how many chunks the file can have, as far as is known
  std::uint32_t dictionary_chunks_ = 0;
};

}  // namespace lowtide::trace
