// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/dictionary.hpp"

#include <cstring>
#include <functional>
#include <new>

#include "allocator/trace/process_facts.hpp"

namespace lowtide::trace {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
  hash = (hash ^ value) * odd;
  return hash ^ hash >> 32;
}

}  // namespace

StringId Dictionary::intern(std::string_view text) noexcept {
  if (text.empty()) return {};
  text = text.substr(0, longest_string);
  const auto hash = std::hash<std::string_view>{}(text);
  if (const auto known = strings_.find(hash, text); known != 0) return StringId{known};
  const std::lock_guard lock(mutex_);
  if (const auto known = strings_.find(hash, text); known != 0) return StringId{known};
  const auto id = last_string_ + 1;
  try {
    std::string key(text);
    if (!append(EntryKind::string, id, text)) return drop(), StringId{};
    last_string_ = id;
    strings_.insert(hash, std::move(key), id);
  } catch (const std::bad_alloc&) {
    return drop(), StringId{};
  }
  return StringId{id};
}

StackId Dictionary::stack(std::span<const Frame> frames) noexcept {
  std::uint32_t node = 0;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    node = this->frame({node, *frame});
    if (node == 0) break;
  }
  return StackId{node};
}

std::uint32_t Dictionary::frame(const Node& node) noexcept {
  const auto& [parent, frame] = node;
  const auto where = static_cast<std::uint64_t>(frame.function) << 32 | static_cast<std::uint32_t>(frame.file);
  const auto hash = mixed(mixed(mixed(parent, frame.address), where), frame.line);
  if (const auto known = frames_.find(hash, node); known != 0) return known;
  const std::lock_guard lock(mutex_);
  if (const auto known = frames_.find(hash, node); known != 0) return known;
  const auto id = last_frame_ + 1;
  const FrameEntry entry{parent, frame.line, frame.address, frame.function, frame.file};
  try {
    if (!append(EntryKind::frame, id, {reinterpret_cast<const char*>(&entry), sizeof entry})) return drop(), 0;
    last_frame_ = id;
    frames_.insert(hash, node, id);
  } catch (const std::bad_alloc&) {
    return drop(), 0;
  }
  return id;
}

void Dictionary::module(const Module& module) noexcept {
  append_entry(EntryKind::module, ModuleEntry{monotonic_now(), module.start, module.end, module.offset,
                                              intern(module.path), intern(module.build_id)});
}

void Dictionary::device(const Device& device) noexcept {
  append_entry(EntryKind::device,
               DeviceEntry{device.total.value, index_of(device.ordinal), intern(device.uuid), intern(device.name), 0});
}

template <class Entry>
void Dictionary::append_entry(EntryKind kind, const Entry& entry) noexcept {
  const std::lock_guard lock(mutex_);
  if (!append(kind, 0, {reinterpret_cast<const char*>(&entry), sizeof entry})) drop();
}

bool Dictionary::append(EntryKind kind, std::uint32_t id, std::span<const char> payload) noexcept {
  const auto size = sizeof(EntryHeader) + (payload.size() + 7) / 8 * 8;
  if (!chunk_ || used_ + size > chunk_bytes - sizeof(ChunkHeader)) {
    const auto next = file_.claim_for_dictionary();
    if (!next) return false;
    chunk_ = next;
    used_ = 0;
  }
  auto* const at = chunk_->content() + used_;
  auto* const header = reinterpret_cast<EntryHeader*>(at);
  header->id = id;
  std::memcpy(at + sizeof(EntryHeader), payload.data(), payload.size());
  header->word.store(static_cast<std::uint32_t>(payload.size()) << 8 | static_cast<std::uint32_t>(kind),
                     std::memory_order_release);
  used_ += size;
  return true;
}

}  // namespace lowtide::trace
