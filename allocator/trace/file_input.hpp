// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/unique_fd.hpp"
#include "allocator/trace/format.hpp"
#include "allocator/trace/reader.hpp"

namespace lowtide::trace {

/// What could not be read: each place once, up to a number that somebody will look at.
class DamageList {
 public:
  static constexpr std::size_t most = 100;
  void add(const std::string& path, std::uint64_t offset, std::string what) {
    const auto same = [&](const Damage& other) { return other.offset == offset && other.path == path; };
    if (damage_.size() < most && std::none_of(damage_.begin(), damage_.end(), same))
      damage_.push_back({path, offset, std::move(what)});
  }
  std::span<const Damage> all() const noexcept { return damage_; }

 private:
  std::vector<Damage> damage_;
};

/// Where a chunk lies and what it said of itself when it was looked at.
struct ChunkPlace {
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t claim = 0;   ///< not unused
  std::uint64_t events = 0;  ///< of a closed one
};

/// A trace file that is read, in pieces, since a mapped one ends the reader if somebody cuts it short. Nothing that it
/// says is believed without a look.
class FileInput {
 public:
  /// Code::invalid if it cannot be opened or is not a trace of this version.
  static Result<FileInput> open(const std::string& path);

  const TracedProcess& process() const noexcept { return process_; }
  const std::string& boot_id() const noexcept { return boot_id_; }
  /// What is added to the time of an event to get ns since 1970.
  std::uint64_t to_realtime() const noexcept { return to_realtime_; }

  /// The chunks that are used, in the order of the file.
  std::vector<ChunkPlace> chunks(DamageList& damage) const;
  /// Reads what the file has of the `bytes` at `offset`; how many that were.
  std::size_t read(std::uint64_t offset, void* to, std::size_t bytes) const noexcept;
  /// Whether the chunk is in the use in which it was found. If not, what was read of it may be of its next one.
  bool is_unchanged(const ChunkPlace& chunk) const noexcept;

 private:
  FileInput() = default;
  Status read_header(std::uint64_t size);
  void check_length(std::uint64_t size, DamageList& damage) const;

  UniqueFd fd_;
  TracedProcess process_;
  std::string boot_id_;
  std::uint64_t to_realtime_ = 0;
  std::uint32_t chunks_ = 0;  ///< that the file should have
};

}  // namespace lowtide::trace
