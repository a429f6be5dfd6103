// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "allocator/base/bytes.hpp"
#include "backends/hip/runtime.hpp"

namespace lowtide::hip {

/// Copies and fills on one device, spread over streams so that the engine has the next one when one ends, and marked
/// by events, so that it is known how much is still to be done. Everything is made at once: a full device can still be
/// paused. The device is the thread's during each call; one call at a time.
class Copier {
 public:
  static Result<Copier> make(const Runtime& runtime) noexcept;
  Copier() = default;
  /// A handle: whoever has it last calls this, unless the device was reset, and the streams went with that.
  void destroy() noexcept;

  /// Starts work of `bytes` bytes by `call(stream)`.
  template <class Call>
  Status start(const char* name, Bytes bytes, Call call) {
    if (auto status = runtime_->status(call(streams_[current_]), name); !status) return status;
    unmarked_ += bytes;
    return unmarked_ < bytes_per_mark ? Status() : mark();
  }
  /// Waits until at most `bytes` are in flight.
  Status limit(Bytes bytes);
  /// Waits for everything.
  Status finish();

 private:
  static constexpr std::size_t stream_count = 2;
  static constexpr std::size_t mark_count = 32;
  static constexpr Bytes bytes_per_mark{std::uint64_t{32} << 20};

  explicit Copier(const Runtime& runtime) : runtime_(&runtime) {}
  /// Marks the end of what was started last, and goes on in the next stream.
  Status mark();
  Status wait_for_oldest();

  const Runtime* runtime_ = nullptr;
  std::array<hipStream_t, stream_count> streams_{};
  std::array<hipEvent_t, mark_count> events_{};
  std::size_t current_ = 0;
  // A ring of marks, oldest first.
  std::array<Bytes, mark_count> marked_{};
  std::size_t oldest_ = 0;
  std::size_t marks_ = 0;
  Bytes in_flight_;  ///< behind marks
  Bytes unmarked_;
};

}  // namespace lowtide::hip
