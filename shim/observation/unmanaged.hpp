// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "allocator/core/types.hpp"
#include "allocator/trace/event.hpp"

namespace lowtide {

/// What the vendor's own functions gave out in this process and did not get back: so that a free has a size, and the
/// sums are known. Thread-safe. Calls that add may throw std::bad_alloc; then nothing has changed.
class Unmanaged {
 public:
  struct Piece {
    trace::Memory kind{};
    DeviceId device{};
    Bytes bytes;
    ContextId context;        ///< with which it dies; 0: with none
    std::uint64_t value = 0;  ///< of its event
  };
  struct Placed {
    std::uint64_t address = 0;
    Piece piece;
  };
  static constexpr std::size_t kinds = static_cast<std::size_t>(trace::Memory::host_registered) + 1;
  /// Bytes by kind.
  using Sums = std::array<Bytes, kinds>;

  void add(std::uint64_t address, const Piece& piece);
  /// Of a kind whose addresses `kind`'s can be the same as. Nothing if nobody has seen that given.
  std::optional<Piece> remove(trace::Memory kind, std::uint64_t address);
  /// What dies with `context`, taken out.
  std::vector<Placed> remove_all_of(ContextId context);

  // Physical handles: their memory goes when nobody has a reference, and it is mapped nowhere.
  /// One more reference to a known handle.
  void retain(std::uint64_t handle);
  /// One less; the piece if that was the last of it.
  std::optional<Piece> release(std::uint64_t handle);
  void map(AddressRange range, std::uint64_t handle);
  /// Everything that is mapped in `range`; the handles whose memory goes with that.
  std::vector<Placed> unmap(AddressRange range);

  /// By device.
  std::map<DeviceId, Sums> sums() const;

 private:
  /// Handles and arrays have numbers of their own.
  enum class Space : std::uint8_t { memory, handle, array };
  struct Key {
    Space space;
    std::uint64_t address;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return (key.address + static_cast<std::uint64_t>(key.space)) * 0x9e3779b97f4a7c15ULL >> 7;
    }
  };
  struct Entry {
    Piece piece;
    std::uint32_t references = 1;
    std::uint32_t mappings = 0;
  };
  struct Mapping {
    Bytes size;
    std::uint64_t handle;
  };
  using Entries = std::unordered_map<Key, Entry, Hash>;

  static Space space_of(trace::Memory kind) noexcept;
  void count(const Piece& piece, bool more);
  Piece take(Entries::iterator entry);
  std::optional<Piece> take_if_unused(Entries::iterator entry);

  mutable std::mutex mutex_;
  Entries entries_;
  std::map<std::uint64_t, Mapping> mappings_;  ///< by address
  std::map<DeviceId, Sums> sums_;
};

}  // namespace lowtide
