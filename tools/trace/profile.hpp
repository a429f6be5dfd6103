// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/bytes.hpp"

// Where the memory of traced processes went: what all outputs of `lowtide trace` show. Made from traces
// (profile_builder.hpp) or from the lines of a training log (log_profile.hpp); small, whatever the length of those.
namespace lowtide::tools {

/// One of the numbers that are followed over time.
struct Series {
  enum class Kind {
    tag,
    unmanaged,     ///< allocated by the process, in no tag
    others,        ///< of other processes
    unattributed,  ///< used on the device, and nobody can say for what
    measure,       ///< no part of what is used: what a log said of its own counters
    available,     ///< likewise, and the smallest counts
  };
  Kind kind = Kind::tag;
  std::string name;

  bool operator==(const Series&) const = default;
};

/// Whether a series is a part of the device's used bytes.
constexpr bool is_part(const Series& series) {
  return series.kind != Series::Kind::measure && series.kind != Series::Kind::available;
}

/// What lines of a log say, at one moment.
struct Moment {
  std::int64_t time = 0;  ///< ns since 1970
  Bytes allocated;        ///< of this process on the device
  Bytes reserved;         ///< and what of it is parked
  Bytes used;             ///< of the device, by all
};

/// A phase that was run through once.
struct PhaseRun {
  std::string name;
  std::uint64_t step = 0;  ///< from 1
  std::int64_t start = 0;  ///< ns since 1970
  std::int64_t end = 0;
  std::vector<Bytes> peaks;  ///< by the place in DeviceProfile::series; those behind the end are 0
  Bytes used;                ///< at most
  Bytes backups;             ///< on the host, at most
  std::uint64_t waited = 0;  ///< ns
  Moment first;
  Moment last;

  Bytes peak(std::size_t series) const { return series < peaks.size() ? peaks[series] : Bytes{}; }
};

/// The state from `time` on.
struct Point {
  std::int64_t time = 0;  ///< ns since 1970
  std::uint64_t used = 0;
  std::vector<std::uint64_t> bytes;  ///< by series; those behind the end are 0
};

struct DeviceProfile {
  int device = 0;
  std::string name;  ///< "" if it is not known
  std::string uuid;
  Bytes total;  ///< 0 if it is not known
  std::vector<Series> series;
  std::vector<PhaseRun> runs;
  std::vector<Point> points;  ///< thinned out, with the smallest and the largest used bytes kept
};

/// Where allocations came from.
struct Site {
  std::string place;  ///< a function and its file, or a library and an offset
  std::string tag;    ///< "" if none
  std::uint64_t allocations = 0;
  Bytes peak;  ///< that lived at one time
};

struct ProcessProfile {
  std::string name;  ///< the command, or what a log calls it
  std::uint64_t pid = 0;
  std::string host;
  bool declared = false;  ///< its phases were named by the program, not inferred
  std::uint64_t pauses = 0;
  std::uint64_t resumes = 0;
  std::uint64_t refusals = 0;
  std::uint64_t out_of_memory = 0;
  std::vector<DeviceProfile> devices;
  std::vector<Site> sites;  ///< the largest first
};

struct Profile {
  std::vector<ProcessProfile> processes;
  std::vector<std::string> notes;  ///< what is missing, for people
};

/// Seconds from `start` to `end`, ns both. Defined for any two that are in this order, whatever a file says.
constexpr double seconds_between(std::int64_t start, std::int64_t end) {
  return static_cast<double>(static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(start)) / 1e9;
}

/// "process 12 on host, device 0"
std::string title_of(const ProcessProfile& process, const DeviceProfile& device);

}  // namespace lowtide::tools
