// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>

#include "allocator/core/backend.hpp"

namespace lowtide {

/// Memory of a trial, mapped or not, at an address of its own. What it has it gives back, also when the trial failed
/// half-way. Beside the port, since backends of both kinds try what they have by it.
class TrialMemory {
 public:
  TrialMemory(Backend& its_backend, Bytes its_size) : backend_(its_backend), size_(its_size) {}
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

 protected:
  ~TrialMemory() {
    (void)backend_.finish_copies();  // those of a trial that failed half-way would meet memory that is gone
    if (mapped_) (void)backend_.unmap(range_);
    if (physical_.value != 0) (void)backend_.release(physical_);
    if (range_.start.value != 0) (void)backend_.release_reservation(range_);
  }

  Status reserve() {
    const auto start = backend_.reserve(size_);
    if (!start) return fail(start.error());
    range_ = {*start, size_};
    return {};
  }
  Status release_reservation() {
    auto status = backend_.release_reservation(range_);
    if (status) range_ = {};
    return status;
  }
  Status take(const Result<PhysicalId>& created) {
    if (!created) return fail(created.error());
    physical_ = *created;
    return {};
  }
  Status map() {
    auto status = backend_.map(range_, physical_);
    mapped_ = status.has_value();
    return status;
  }
  Status unmap() {
    auto status = backend_.unmap(range_);
    if (status) mapped_ = false;
    return status;
  }
  Status release() {
    auto status = backend_.release(physical_);
    if (status) physical_ = {};
    return status;
  }
  /// Copies what is at `offset` to `bytes_`; whether all of it is `value`.
  Result<bool> reads(Bytes offset, std::uint8_t value) {
    bytes_.fill(static_cast<std::uint8_t>(~value));
    if (auto status = backend_.copy_out(bytes_.data(), {range_.start + offset, {bytes_.size()}}); !status)
      return fail(status.error());
    if (auto status = backend_.finish_copies(); !status) return fail(status.error());
    return bytes_are(value);
  }
  bool bytes_are(std::uint8_t value) const {
    return std::all_of(bytes_.begin(), bytes_.end(), [=](std::uint8_t byte) { return byte == value; });
  }

  Backend& backend_;
  const Bytes size_;
  AddressRange range_{};
  PhysicalId physical_{};
  bool mapped_ = false;
  std::array<std::uint8_t, 4096> bytes_{};  ///< what was read; a copy may be in flight to it until the end
};

}  // namespace lowtide
