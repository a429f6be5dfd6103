// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/core/backend.hpp"

namespace lowtide {

/// Starts copies between a device and host memory: pieces that follow each other on both sides at once.
class CopyRun {
 public:
  enum class Direction : std::uint8_t { out, in };

  CopyRun(Backend& backend, Direction direction) : backend_(backend), direction_(direction) {}

  Status add(unsigned char* host, AddressRange range) {
    if (range_.end() != range.start || host_ + range_.size.value != host) {
      if (auto status = flush(); !status) return status;
      host_ = host;
      range_ = {range.start, {}};
    }
    range_.size += range.size;
    return {};
  }

  /// Starts the copy of what was added and not yet started. To be called at the end.
  Status flush() {
    const AddressRange range = range_;
    range_ = {};
    if (range.size.value == 0) return {};
    return direction_ == Direction::out ? backend_.copy_out(host_, range) : backend_.copy_in(range, host_);
  }

 private:
  Backend& backend_;
  const Direction direction_;
  unsigned char* host_ = nullptr;
  AddressRange range_;
};

}  // namespace lowtide
