// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/backup/slab.hpp"

namespace lowtide {

/// The slabs of a process, and who has which part of them. Thread-safe.
class PinnedArena {
 public:
  /// A part of a slab. Owned by who took it, until it is given back.
  struct Place {
    Slab* slab = nullptr;
    unsigned char* memory = nullptr;
    explicit operator bool() const noexcept { return slab != nullptr; }
  };

  /// `size` bytes in one piece, of what is free; nothing if no gap is large enough. May throw std::bad_alloc.
  std::optional<Place> take(Bytes size);
  void give_back(const Place& place) noexcept;
  void add(std::unique_ptr<Slab> slab);
  /// Gives slabs in which nobody has a place back to the host. Those that the driver does not let go stay. Slow: the
  /// driver is called, off the lock.
  void release_empty() noexcept;

  /// Bytes of all slabs.
  Bytes size() const noexcept;
  /// Bytes of each slab that nobody has. May throw std::bad_alloc.
  std::vector<Bytes> free_by_slab() const;

 private:
  using Slabs = std::list<std::unique_ptr<Slab>>;

  mutable std::mutex mutex_;
  Slabs slabs_;
  Bytes size_;
  Bytes free_;
};

}  // namespace lowtide
