// SPDX-License-Identifier: Apache-2.0
//
// How a hook tells what the vendor's own function did. While nobody records, it costs one load.
#pragma once

#include <type_traits>

#include "allocator/trace/event.hpp"
#include "shim/preload/door.hpp"

namespace lowtide::preload {

using trace::Memory;
using trace::Op;

/// What both vendors answer.
inline constexpr int call_succeeded = 0;
inline constexpr int no_device_memory = 2;

template <typename Value>
std::uint64_t number_of(Value value) noexcept {
  if constexpr (std::is_pointer_v<Value>)
    return reinterpret_cast<std::uintptr_t>(value);
  else
    return value;
}

inline bool is_recording(const lowtide_door_table_v1& state) noexcept {
  return __atomic_load_n(state.recording, __ATOMIC_RELAXED) != 0;
}

constexpr lowtide_record record_of(Op op, Memory kind, std::uint64_t address, std::uint64_t bytes = 0,
                                   std::uint64_t value = 0) noexcept {
  return {static_cast<std::uint8_t>(op), trace::kind_of(kind), -1, address, bytes, value};
}

/// Tells of a call that answered `result`, if that is success; the record is made by `make` only then.
template <lowtide_vendor vendor, typename Result, typename Make>
Result told(Result result, Make make) noexcept {
  const auto& state = door(vendor);
  if (int{result} != call_succeeded || !is_recording(state)) return result;
  const lowtide_record record = make();
  state.record(&record);
  return result;
}

/// A call that gives out memory, whose address, or handle, is in `*address` afterwards, answered `result`. `value`: its
/// stream, if it has one; `device`: as in lowtide_record.
template <lowtide_vendor vendor, typename Result, typename Address>
Result given(Result result, Memory kind, const Address* address, std::uint64_t bytes, const void* value = nullptr,
             int device = -1) noexcept {
  const auto& state = door(vendor);
  if (!is_recording(state)) return result;
  lowtide_record record = record_of(Op::alloc, kind, 0, bytes, number_of(value));
  record.device = static_cast<std::int16_t>(device);
  if (int{result} == no_device_memory)
    record.op = static_cast<std::uint8_t>(Op::out_of_memory);
  else if (int{result} != call_succeeded)
    return result;
  else
    record.address = number_of(*address);
  state.record(&record);
  return result;
}

/// Makes `call`, which takes back the memory at `address`, or a handle or an array.
template <lowtide_vendor vendor, typename Address, typename Call>
auto taken_back(Memory kind, Address address, Call call) noexcept {
  const auto& state = door(vendor);
  if (!is_recording(state)) return call();
  lowtide_record record = record_of(Op::free, kind, number_of(address));
  const bool known = state.record_release(&record) != 0;
  const auto result = call();
  if (known && int{result} != call_succeeded) state.record(&record);
  return result;
}

/// Bytes of an array of `levels` mipmaps.
constexpr std::uint64_t array_bytes(std::uint64_t width, std::uint64_t height, std::uint64_t depth,
                                    std::uint64_t element, unsigned levels = 1) noexcept {
  std::uint64_t bytes = 0;
  for (unsigned level = 0; level < levels && level < 64; ++level) {
    const auto side = [level](std::uint64_t whole) { return whole >> level > 0 ? whole >> level : 1; };
    bytes += side(width) * side(height) * side(depth) * element;
  }
  return bytes;
}

/// Bytes of a channel, by the numbers that both vendors give formats; those of a format that packs or compresses its
/// channels are not known, and count as 1.
constexpr std::uint64_t channel_bytes(int format) noexcept {
  switch (format) {
    case 0x02:
    case 0x09:
    case 0x10: return 2;
    case 0x03:
    case 0x0a:
    case 0x20: return 4;
    default: return 1;
  }
}

}  // namespace lowtide::preload
