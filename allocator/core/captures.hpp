// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "allocator/base/result.hpp"
#include "allocator/core/observer.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// The stream captures of this process, and who must wait for whom: no transition while a stream is being captured (a
/// synchronise would break the capture), no new capture while a transition runs. Thread-safe, never allocates.
class Captures {
 public:
  /// Keeps new captures out while it lives.
  class Block {
   public:
    explicit Block(Captures& captures) noexcept : captures_(&captures) {}
    Block(Block&& other) noexcept : captures_(std::exchange(other.captures_, nullptr)) {}
    Block& operator=(Block&&) = delete;
    ~Block() {
      if (captures_ != nullptr) captures_->unblock();
    }

   private:
    Captures* captures_;
  };

  /// Whom to tell of waits; it outlives this. Before the first transition.
  void set_observer(Observer& observer) noexcept { observer_ = &observer; }

  /// Before a capture begins: waits while a Block lives.
  void begin() noexcept;
  /// After: `stream` of `context` (none: unknown) is capturing, or the call failed.
  void began(const void* stream, bool ok, ContextId context = {}) noexcept;
  /// The capture on `stream` is over. Returns true if it was the last one.
  bool ended(const void* stream) noexcept;
  /// `context` is gone or about to go, and its captures with it. Returns true if one of them was the last one.
  bool lost(ContextId context) noexcept;

  /// Code::refused if a capture is under way.
  Result<Block> block() noexcept;
  std::uint64_t active() const noexcept;
  /// In the child of a fork no other thread exists that could end a wait.
  void abandon() noexcept { blocks_ = 0; }

 private:
  void unblock() noexcept;

  Observer* observer_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable unblocked_;
  struct Capture {
    const void* stream = nullptr;
    ContextId context;
  };
  std::array<Capture, 64> captures_{};  // those beyond the 64th are only counted
  std::uint64_t active_ = 0;            // begun or about to begin
  std::uint64_t unlisted_ = 0;
  std::uint64_t blocks_ = 0;
};

}  // namespace lowtide
