// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "allocator/core/types.hpp"

namespace lowtide {

struct DeviceReport {
  DeviceId device{};
  Bytes free_before;
  Bytes free_after;
};

/// A block that came back at another address.
struct BlockMove {
  TagName tag;
  DeviceAddress from;
  DeviceAddress to;
  Bytes size;  ///< as requested
};

/// What a transition did. Bytes are requested bytes: what the host program asked for.
struct TransitionReport {
  Bytes parked;     ///< pause: copied out and taken off the device; resume: brought back from a backup
  Bytes discarded;  ///< pause: dropped; resume: brought back without their old content
  Bytes kept;       ///< left on the device because the tag's action is keep
  std::uint64_t blocks = 0;
  std::chrono::duration<double> time{};
  std::vector<DeviceReport> devices;
  std::vector<BlockMove> moves;
};

/// What a trim did to the host memory of the backups.
struct TrimReport {
  Bytes given_back;
  Bytes held;  ///< still: backups of parked content, and what cannot be given back without them
};

/// How far the copying of a transition is.
struct Progress {
  Bytes done;
  Bytes total;
};

/// What may be in flight when progress is told: enough to keep the link busy.
constexpr Bytes in_flight_when_told = 256_MiB;

/// Called now and then while a transition copies, on the thread that copies. May be empty.
using ProgressSink = std::function<void(const Progress&)>;

}  // namespace lowtide
