// SPDX-License-Identifier: Apache-2.0
// What is known of the blocks' bytes: who has a copy, who is stale, and the updates of a tag.
#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <utility>

#include "allocator/core/block_table.hpp"

namespace lowtide {
namespace {

/// "block of 20.0 MiB at 0x7f.. (tag weights, device 0)"
std::array<char, 160> name_of(const Block& block) {
  const Region& region = block.extent->region;
  std::array<char, 160> text;
  std::snprintf(text.data(), text.size(), "a block of %s at 0x%" PRIx64 " (tag %.63s, device %d)",
                to_text(block.range.size).c_str(), block.range.start.value, region.label.tag.c_str(),
                index_of(region.backend.device()));
  return text;
}

/// The words for a state in which `call` cannot be.
Failure refuse_update(const TagName& tag, std::uint64_t version, const char* call) {
  return fail(Error::format(Code::refused,
                            "an update of %s to version %" PRIu64
                            " is under way: commit or abort it before %s. Nothing "
                            "changed",
                            tag.c_str(), version, call));
}

}  // namespace

template <class Visit>
void BlockTable::for_each_block_of(const TagName& tag, Visit visit) {
  for (auto& [start, block] : blocks_) {
    if (block.extent->region.label.tag == tag) visit(block);
  }
}

template <class Wanted>
std::vector<AddressRange> BlockTable::ranges_in(const Extent& extent, Wanted wanted) const {
  std::vector<AddressRange> ranges;
  const std::lock_guard lock(mutex_);
  const auto end = blocks_.lower_bound(extent.range().end());
  for (auto block = blocks_.lower_bound(extent.range().start); block != end; ++block) {
    if (wanted(block->second.content)) ranges.push_back(block->second.range);
  }
  return ranges;
}

std::vector<AddressRange> BlockTable::to_be_blanked(const Extent& extent, bool all) const {
  return ranges_in(extent, [&](const BlockContent& content) {
    return content.freshness == Freshness::stale && !content.dropped_unseen && !(all && content.copied);
  });
}

std::vector<AddressRange> BlockTable::blank_in(const Extent& extent) const {
  return ranges_in(extent, [](const BlockContent& content) { return content.blank; });
}

std::vector<AddressRange> BlockTable::content_to_hold_back(const Extent& extent) const {
  std::vector<AddressRange> content;
  const std::lock_guard lock(mutex_);
  const auto end = blocks_.lower_bound(extent.range().end());
  for (auto each = blocks_.lower_bound(extent.range().start); each != end; ++each) {
    const Block& block = each->second;
    if (block.content.freshness != Freshness::valid) continue;
    if (!block.content.learnt) content.push_back(block.range);
    if (!block.content.learnt) continue;
    for (const auto& part : block.content.residue.ranges())
      content.push_back({block.range.start + part.start, part.size});
  }
  return content;
}

Bytes BlockTable::note_parked(Extent& extent, const ParkedContent& parked) noexcept {
  Bytes copied;
  const std::lock_guard lock(mutex_);
  for_each_block(*this, extent.range(), [&](Block& block) {
    BlockContent& its = block.content;
    its.blank = false;
    its.copied = extent.backup != nullptr && (parked.all || its.freshness == Freshness::valid);
    if (its.copied) copied += block.range.size;
    if (its.copied || parked.content == Content::scratch) return;
    if (its.freshness == Freshness::valid) its.dropped_unseen = !parked.covered;
    if (parked.holds_back && its.freshness == Freshness::valid)
      its.held = its.learnt ? BlockContent::Held::residue : BlockContent::Held::all;
    its.freshness = Freshness::stale;
  });
  return copied;
}

Bytes BlockTable::note_resumed(Extent& extent, bool all, bool blank) noexcept {
  Bytes copied;
  const std::lock_guard lock(mutex_);
  for_each_block(*this, extent.range(), [&](Block& block) {
    BlockContent& its = block.content;
    its.blank = blank && its.freshness == Freshness::stale && !its.dropped_unseen && !(all && its.copied);
    if (std::exchange(its.copied, false)) copied += block.range.size;
    its.written.clear();
  });
  return copied;
}

std::vector<AddressRange> BlockTable::held_of(const Extent& extent, std::span<const AddressRange> runs,
                                              bool held) const {
  std::vector<AddressRange> parts;
  const std::lock_guard lock(mutex_);
  for (const AddressRange& run : runs) {
    const auto after = blocks_.upper_bound(run.start);
    if (after == blocks_.begin() || !extent.range().contains(run.start)) continue;
    const Block& block = std::prev(after)->second;
    const Bytes start = run.start - block.range.start;
    RangeSet whole;
    if (block.content.held == BlockContent::Held::all) whole.add({}, block.range.size);
    const RangeSet& kept = block.content.held == BlockContent::Held::residue ? block.content.residue : whole;
    for (const auto& part : held ? kept.within(start, run.size) : kept.missing(start, run.size))
      parts.push_back({block.range.start + part.start, part.size});
  }
  return parts;
}

void BlockTable::add_residue(const Extent& extent, std::span<const AddressRange> runs) {
  const std::lock_guard lock(mutex_);
  for (const AddressRange& run : runs) {
    const auto after = blocks_.upper_bound(run.start);
    if (after == blocks_.begin() || !extent.range().contains(run.start)) continue;
    Block& block = std::prev(after)->second;
    block.content.residue.add(run.start - block.range.start, run.size);
  }
}

void BlockTable::forget_learnt(const TagName& tag) noexcept {
  const std::lock_guard lock(mutex_);
  for_each_block_of(tag, [](Block& block) {
    if (block.content.blank) block.content.learnt = false;
  });
}

void BlockTable::note_dropped(Extent& extent, Content content) noexcept {
  const std::lock_guard lock(mutex_);
  for_each_block(*this, extent.range(), [&](Block& block) {
    block.content.copied = false;
    block.content.written.clear();
    if (content == Content::persistent) block.content.freshness = Freshness::stale;
  });
}

std::optional<TagUpdates> BlockTable::updates(const TagName& tag) const {
  const std::lock_guard lock(mutex_);
  const auto found = updates_.find(tag);
  return found == updates_.end() ? std::nullopt : std::optional(found->second);
}

Result<bool> BlockTable::may_begin_update(const TagName& tag, std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  TagUpdates& updates = updates_[tag];
  if (updates.pending == version) return ++updates.repeated, false;
  if (updates.pending) return refuse_update(tag, *updates.pending, "another begins");
  const Block* gone = nullptr;
  for_each_block_of(tag, [&](const Block& block) {
    if (!block.extent->resident && !block.content.copied) gone = &block;
  });
  if (gone == nullptr) return true;
  return fail(Error::format(Code::refused,
                            "%s is parked and was discarded: resume %s before an update of it begins. Nothing changed",
                            name_of(*gone).data(), tag.c_str()));
}

void BlockTable::make_versions(std::span<const TagName> tags) {
  const std::lock_guard lock(mutex_);
  for (const TagName& tag : tags) updates_.try_emplace(tag);
}

void BlockTable::bump(std::span<const TagName> tags) noexcept {
  const std::lock_guard lock(mutex_);
  bump_alone(tags);
}

void BlockTable::bump_alone(std::span<const TagName> tags) noexcept {
  for (const TagName& tag : tags) {
    const auto found = updates_.find(tag);
    // Beyond the last version there is none, and 0 would be older than all.
    if (found != updates_.end() && found->second.version != ~std::uint64_t{0}) ++found->second.version;
  }
}

void BlockTable::begin_update(const TagName& tag, std::uint64_t version, std::span<const TagName> bumped) {
  make_versions(bumped);
  const std::lock_guard lock(mutex_);
  updates_[tag].pending = version;
  bump_alone(bumped);
  for_each_block_of(tag, [](Block& block) {
    block.content.was_stale = block.content.freshness == Freshness::stale;
    block.content.freshness = Freshness::syncing;
    block.content.written.clear();
  });
}

Result<bool> BlockTable::may_commit_update(const TagName& tag, std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  TagUpdates& updates = updates_[tag];
  if (!updates.pending && updates.committed > 0 && updates.version == version) return ++updates.repeated, false;
  if (updates.pending != version) {
    const auto under_way = updates.pending ? "version " + std::to_string(*updates.pending) : std::string("none");
    return fail(Error::format(Code::refused,
                              "no update of %s to version %" PRIu64 " is under way (%s is; its content is of version "
                              "%" PRIu64 "). Nothing changed",
                              tag.c_str(), version, under_way.c_str(), updates.version));
  }
  const Block* unwritten = nullptr;
  for_each_block_of(tag, [&](const Block& block) {
    if (!block.extent->resident && !block.content.written.covers({}, block.range.size)) unwritten = &block;
  });
  if (unwritten == nullptr) return true;
  return fail(Error::format(Code::refused,
                            "%s is parked, and the update has written %" PRIu64 " of %" PRIu64
                            " bytes of its backup: write the rest (lowtide_write_paused) and commit again. Nothing "
                            "changed",
                            name_of(*unwritten).data(), unwritten->content.written.bytes().value,
                            unwritten->range.size.value));
}

Result<bool> BlockTable::may_mark_valid(const TagName& tag, std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  TagUpdates& updates = updates_[tag];
  if (updates.pending) return refuse_update(tag, *updates.pending, "its content is declared valid");
  const Block* stale = nullptr;
  const Block* parked = nullptr;
  for_each_block_of(tag, [&](const Block& block) {
    if (block.content.freshness != Freshness::stale) return;
    stale = &block;
    if (!block.extent->resident) parked = &block;
  });
  if (parked != nullptr) {
    return fail(Error::format(Code::refused, "%s is parked without valid content: resume %s first. Nothing changed",
                              name_of(*parked).data(), tag.c_str()));
  }
  if (stale != nullptr) return true;
  if (updates.version == version) return ++updates.repeated, false;
  return fail(Error::format(Code::refused,
                            "%s is not stale: its content is of version %" PRIu64 "; new content of version %" PRIu64
                            " is an update. Nothing changed",
                            tag.c_str(), updates.version, version));
}

Result<bool> BlockTable::may_drop_backup(const TagName& tag) {
  const std::lock_guard lock(mutex_);
  TagUpdates& updates = updates_[tag];
  if (updates.pending) return refuse_update(tag, *updates.pending, "its backup is dropped");
  bool parked = false;
  bool copied = false;
  for_each_block_of(tag, [&](const Block& block) {
    parked = parked || !block.extent->resident;
    copied = copied || block.content.copied;
  });
  if (copied) return true;
  if (parked) return ++updates.repeated, false;
  return fail(Error::format(Code::refused, "nothing of %s is parked: there is no backup to drop", tag.c_str()));
}

void BlockTable::set_valid(const TagName& tag, std::uint64_t version, std::span<const TagName> bumped) {
  make_versions(bumped);
  const std::lock_guard lock(mutex_);
  TagUpdates& updates = updates_[tag];
  for_each_block_of(tag, [](Block& block) {
    BlockContent& its = block.content;
    if (its.blank && its.held == BlockContent::Held::all) its.learnt = true;
    its.freshness = Freshness::valid;
    its.dropped_unseen = false;
    its.blank = false;
    its.held = BlockContent::Held::nothing;
    its.written.clear();
  });
  updates.version = version;
  updates.pending.reset();
  ++updates.committed;
  bump_alone(bumped);
}

bool BlockTable::end_update(const TagName& tag, bool refused) {
  const std::lock_guard lock(mutex_);
  TagUpdates& updates = updates_[tag];
  if (!updates.pending) return ++updates.repeated, false;
  for_each_block_of(tag, [](Block& block) {
    // What is parked only a call of ours can have written to.
    const bool as_before = !block.extent->resident && block.content.written.empty() && !block.content.was_stale;
    block.content.freshness = as_before ? Freshness::valid : Freshness::stale;
  });
  updates.pending.reset();
  ++(refused ? updates.refused : updates.aborted);
  return true;
}

void BlockTable::measure(std::span<TagMemory> rows) const noexcept {
  const std::lock_guard lock(mutex_);
  for (TagMemory& row : rows) {
    row.held = {};
    for (const Region& region : regions_) {
      if (region.label.tag != row.tag || region.backend.device() != row.device) continue;
      for (const auto& [start, extent] : region.extents) {
        if (extent.holds_memory()) row.held += extent.range().size;
      }
    }
  }
}

}  // namespace lowtide
