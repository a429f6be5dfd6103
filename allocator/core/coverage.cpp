// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/coverage.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>

#include "allocator/base/log.hpp"
#include "allocator/core/blank_memory.hpp"

namespace lowtide {
namespace {

/// Of the host memory through which held back bytes pass.
constexpr Bytes put_back_at_once = 16_MiB;

/// Takes what lies behind the last whole word off those of `blocks` where a copy of it is held back, and returns that.
/// So few bytes match their pattern by chance: nothing can be told by what they hold, and nothing has to be, since they
/// get their old bytes at the resume and whatever an update writes over them stays.
std::vector<AddressRange> take_off_rests(const BlockTable& table, const Extent& extent,
                                         std::vector<AddressRange>& blocks) {
  std::vector<AddressRange> rests;
  if (!extent.held_back) return rests;
  for (AddressRange& block : blocks) {
    const Bytes words{block.size.value - block.size.value % blank_unit};
    const AddressRange rest{block.start + words, block.size - words};
    if (rest.size.value == 0 || table.held_of(extent, {&rest, 1}, true).empty()) continue;
    rests.push_back(rest);
    block.size = words;
  }
  return rests;
}

Status load_rests(const Extent& extent, std::span<const AddressRange> rests) {
  for (const AddressRange& rest : rests) {
    std::array<std::byte, blank_unit> bytes{};
    const Bytes offset = rest.start - extent.range().start;
    auto status = extent.held_back->read(offset, bytes.data(), rest.size);
    if (status) status = extent.region.backend.copy_in({extent.place().start + offset, rest.size}, bytes.data());
    const auto finished = extent.region.backend.finish_copies();
    if (!status || !finished) return status ? finished : status;
  }
  return {};
}

Coverage coverage_of(const CoreSettings& settings, const Extent& extent) {
  return settings.of(extent.region.label).coverage.value_or(Coverage::off);
}

}  // namespace

bool copies_stale(const BlockTable& table, const CoreSettings& settings, const Extent& extent) {
  const auto updates = table.updates(extent.region.label.tag);
  const bool told = updates && (updates->pending || updates->committed + updates->aborted + updates->refused > 0);
  return !told && settings.of(extent.region.label).initial == Freshness::valid;
}

bool is_covered(const CoreSettings& settings, const Extent& extent) {
  return coverage_of(settings, extent) != Coverage::off;
}

Status fill_stale(const BlockTable& table, const CoreSettings& settings, std::span<Extent* const> extents) {
  std::vector<AddressRange> ranges;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = *extents[i];
    if (is_covered(settings, extent)) {
      auto blocks = table.to_be_blanked(extent, copies_stale(table, settings, extent));
      if (auto status = load_rests(extent, take_off_rests(table, extent, blocks)); !status) return status;
      for (const AddressRange& block : blocks)
        ranges.push_back({extent.place().start + (block.start - extent.range().start), block.size});
    }
    // One call for all of a device that follow each other.
    Backend& backend = extent.region.backend;
    if (i + 1 < extents.size() && &extents[i + 1]->region.backend == &backend) continue;
    if (auto status = fill_blank(backend, ranges); !status) return status;
    ranges.clear();
  }
  return {};
}

UpdateCheck::UpdateCheck(BlockTable& table, const CoreSettings& settings, std::span<Extent* const> extents)
    : table_(table), settings_(settings) {
  for (Extent* extent : extents) {
    auto blank = table.blank_in(*extent);
    if (blank.empty()) continue;
    auto rests = take_off_rests(table, *extent, blank);
    found_.push_back({extent, std::move(blank), {}, std::move(rests)});
  }
}

Status UpdateCheck::scan() {
  for (Found& found : found_) {
    auto runs = find_blank(found.extent->region.backend, found.blank);
    if (!runs) return fail(runs.error());
    found.runs = std::move(*runs);
  }
  return {};
}

template <class Wanted>
UpdateCheck::Missing UpdateCheck::missing(Wanted wanted) const {
  Missing missing;
  for (const Found& found : found_) {
    if (!wanted(coverage_of(settings_, *found.extent))) continue;
    for (const AddressRange& part : table_.held_of(*found.extent, found.runs, false)) {
      if (missing.parts++ == 0) {
        missing.first = part;
        missing.device = found.extent->region.backend.device();
      }
      missing.bytes += part.size;
    }
  }
  return missing;
}

Status UpdateCheck::complain(const TagName& tag) const {
  const auto warned = missing([](Coverage coverage) { return coverage == Coverage::warn; });
  if (warned.parts > 0) {
    log(LogLevel::warning,
        "the update of %s did not write %" PRIu64 " bytes in %zu part%s, the first of %" PRIu64 " at 0x%" PRIx64
        " (device %d)",
        tag.c_str(), warned.bytes.value, warned.parts, warned.parts == 1 ? "" : "s", warned.first.size.value,
        warned.first.start.value, index_of(warned.device));
  }
  const auto refused =
      missing([](Coverage coverage) { return coverage == Coverage::enforce || coverage == Coverage::learn; });
  if (refused.parts == 0) return {};
  const auto block = table_.find(refused.first.start);
  return fail(Error::format(
      Code::refused,
      "the update of %s did not write %" PRIu64 " bytes in %zu part%s, the first of %" PRIu64 " at 0x%" PRIx64
      ", byte %" PRIu64
      " of a block of %s (device %d): %s is stale. Write them in another update, or "
      "say that they need not be written (lowtide_mark_valid)",
      tag.c_str(), refused.bytes.value, refused.parts, refused.parts == 1 ? "" : "s", refused.first.size.value,
      refused.first.start.value, block ? (refused.first.start - block->range.start).value : 0,
      to_text(block ? block->range.size : Bytes{}).c_str(), index_of(refused.device), tag.c_str()));
}

Status UpdateCheck::put_back(const Found& found, AddressRange part, std::vector<std::byte>& buffer) const {
  const Extent& extent = *found.extent;
  while (part.size.value > 0) {
    const Bytes size = std::min(part.size, put_back_at_once);
    buffer.resize(std::max<std::size_t>(buffer.size(), size.value));
    auto status = extent.held_back->read(part.start - extent.range().start, buffer.data(), size);
    if (status) status = extent.region.backend.copy_in({part.start, size}, buffer.data());
    // The buffer is used again, and goes.
    const auto finished = extent.region.backend.finish_copies();
    if (!status || !finished) return status ? finished : status;
    part = {part.start + size, part.size - size};
  }
  return {};
}

Status UpdateCheck::put_back() {
  std::vector<std::byte> buffer;
  for (const Found& found : found_) {
    const auto held = table_.held_of(*found.extent, found.runs, true);
    // First: what has been put back is not blank any more when this is repeated.
    table_.add_residue(*found.extent, held);
    table_.add_residue(*found.extent, found.rests);
    for (const AddressRange& part : held) {
      if (auto status = put_back(found, part, buffer); !status) return status;
    }
  }
  return {};
}

}  // namespace lowtide
