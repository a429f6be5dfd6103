// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/base/bytes.hpp"

namespace lowtide::tools {

/// A line of a training log that says how much memory is used. Where it says "GB", it means 2^30 bytes, as the programs
/// that write such lines compute it.
struct MemoryLine {
  std::string label;    ///< what had happened
  std::string process;  ///< "" if it does not say
  std::uint64_t pid = 0;
  std::string host;
  int device = -1;
  std::string time;  ///< as it stands there
  std::optional<Bytes> allocated;
  std::optional<Bytes> reserved;
  std::optional<Bytes> used;
  std::optional<Bytes> total;
  std::optional<Bytes> available;
  std::uint64_t repeated = 0;  ///< as many lines of others were left out by Ray
};

/// Reads the memory lines of verl, SGLang, vLLM and slime, with what Ray, terminals and loggers put around them, and
/// our own. Nothing if it is none of these.
std::optional<MemoryLine> parse_memory_line(std::string_view line);

/// The line that verl prints: "<label>, memory allocated (GB): x, memory reserved (GB): y, device memory used/total
/// (GB): u/t".
std::string memory_line_text(std::string_view label, Bytes allocated, Bytes reserved, Bytes used, Bytes total);

}  // namespace lowtide::tools
