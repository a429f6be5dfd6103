// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/stored_dictionary.hpp"

#include <algorithm>
#include <cstring>

#include "allocator/base/utf8.hpp"

namespace lowtide::trace {
namespace {

constexpr std::size_t content_bytes = chunk_bytes - sizeof(ChunkHeader);

/// Whether `payload` is an Entry; it is copied then.
template <class Entry>
bool copy_entry(std::string_view payload, std::vector<Entry>& to) {
  if (payload.size() != sizeof(Entry)) return false;
  std::memcpy(&to.emplace_back(), payload.data(), sizeof(Entry));
  return true;
}

}  // namespace

StoredDictionary::StoredDictionary(const FileInput& input, std::span<const ChunkPlace> chunks, DamageList& damage) {
  for (const auto& place : chunks) {
    if (state_of(place.claim) == ChunkState::dictionary) read_chunk(input, place, damage);
  }
  const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
  // A ring puts chunks into the file in any order.
  std::stable_sort(strings_.begin(), strings_.end(), by_id);
  std::stable_sort(frames_.begin(), frames_.end(), by_id);
  name_all(input);
}

void StoredDictionary::read_chunk(const FileInput& input, const ChunkPlace& place, DamageList& damage) {
  const auto& buffer = chunks_.emplace_back(std::make_unique<char[]>(content_bytes));
  const auto start = place.offset + sizeof(ChunkHeader);
  const auto length = input.read(start, buffer.get(), content_bytes);
  for (std::size_t at = 0; at + sizeof(EntryHeader) <= length;) {
    std::array<std::uint32_t, 2> header{};  // as in EntryHeader
    std::memcpy(header.data(), buffer.get() + at, sizeof header);
    const auto [word, id] = header;
    if (word == 0) return;
    const std::size_t size = word >> 8;
    const auto payload = at + sizeof header;
    const auto kind = static_cast<EntryKind>(word & 0xFF);
    if (kind == EntryKind::string && size <= length - payload) make_utf8({buffer.get() + payload, size});
    if (size > length - payload || !take(kind, id, {buffer.get() + payload, size})) {
      damage.add(input.process().path, start + at,
                 "an entry of the dictionary means nothing, and what follows is lost");
      return;
    }
    at = payload + (size + 7) / 8 * 8;
  }
}

bool StoredDictionary::take(EntryKind kind, std::uint32_t id, std::string_view payload) {
  switch (kind) {
    case EntryKind::none: return false;
    case EntryKind::string:
      if (payload.size() > longest_string) return false;
      strings_.push_back({id, payload});
      return true;
    case EntryKind::module: return copy_entry(payload, module_entries_);
    case EntryKind::device: return copy_entry(payload, device_entries_);
    case EntryKind::frame: break;
    default: return true;  // of a later time, and passed over
  }
  std::vector<FrameEntry> entry;
  if (!copy_entry(payload, entry) || entry[0].parent >= id) return false;
  frames_.push_back({id, entry[0]});
  return true;
}

void StoredDictionary::name_all(const FileInput& input) {
  for (const auto& entry : module_entries_) {
    const auto time = static_cast<std::int64_t>(entry.time + input.to_realtime());
    modules_.push_back({time, entry.start, entry.end, entry.offset, text(entry.path), text(entry.build_id)});
  }
  std::stable_sort(modules_.begin(), modules_.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  for (const auto& entry : device_entries_) {
    const auto known = [&](const TracedDevice& device) { return device.ordinal == entry.ordinal; };
    std::erase_if(devices_, known);
    devices_.push_back({entry.ordinal, {entry.total}, text(entry.uuid), text(entry.name)});
  }
}

template <class Value>
const Value* StoredDictionary::find(const std::vector<Numbered<Value>>& all, std::uint32_t id) noexcept {
  // Where nothing is missing, they lie at their numbers.
  if (id != 0 && id <= all.size() && all[id - 1].id == id) return &all[id - 1].value;
  const auto found = std::lower_bound(all.begin(), all.end(), id, [](const auto& a, auto b) { return a.id < b; });
  return found != all.end() && found->id == id ? &found->value : nullptr;
}

std::string_view StoredDictionary::text(StringId id) const noexcept {
  const auto* text = find(strings_, static_cast<std::uint32_t>(id));
  return text == nullptr ? std::string_view("") : *text;
}

std::vector<TracedFrame> StoredDictionary::stack(StackId id) const {
  std::vector<TracedFrame> frames;
  // Each parent is below its child, so that this ends.
  for (const auto* entry = find(frames_, static_cast<std::uint32_t>(id)); entry != nullptr;
       entry = find(frames_, entry->parent))
    frames.push_back({entry->address, text(entry->function), text(entry->file), entry->line});
  return frames;
}

}  // namespace lowtide::trace
