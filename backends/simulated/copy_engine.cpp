// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/copy_engine.hpp"

#include <algorithm>
#include <cstring>

namespace lowtide::sim {
namespace {

/// Memory can be taken away between pieces of this size.
constexpr std::uint64_t piece = std::uint64_t{4} << 20;

CUresult copy_row(Memory& memory, const Actor& actor, Side to, Side from, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes; done += piece) {
    const auto now = std::min(piece, bytes - done);
    // A side that is not checked is a touch of no bytes.
    const Touch write{to.address + done, to.device ? now : 0, true};
    const Touch read{from.address + done, from.device ? now : 0, false};
    const auto result = memory.access(actor, {write, read}, [&] {
      std::memmove(reinterpret_cast<void*>(to.address + done), reinterpret_cast<const void*>(from.address + done), now);
    });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

template <class Element>
void fill_with(Address to, std::uint64_t count, unsigned value) {
  std::fill_n(reinterpret_cast<Element*>(to), count, static_cast<Element>(value));
}

}  // namespace

CUresult run_copy(Memory& memory, const Actor& actor, const Copy& copy) {
  for (std::uint64_t row = 0; row < copy.height; ++row) {
    const Side to{copy.to.address + row * copy.to_pitch, copy.to.device};
    const Side from{copy.from.address + row * copy.from_pitch, copy.from.device};
    if (const auto result = copy_row(memory, actor, to, from, copy.width); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult run_fill(Memory& memory, const Actor& actor, const Fill& fill) {
  const auto at_once = piece / fill.element;
  for (std::uint64_t done = 0; done < fill.count; done += at_once) {
    const auto now = std::min(at_once, fill.count - done);
    const auto to = fill.to + done * fill.element;
    const auto result = memory.access(actor, {{to, now * fill.element, true}}, [&] {
      switch (fill.element) {
        case 1: fill_with<std::uint8_t>(to, now, fill.value); break;
        case 2: fill_with<std::uint16_t>(to, now, fill.value); break;
        default: fill_with<std::uint32_t>(to, now, fill.value); break;
      }
    });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace lowtide::sim
