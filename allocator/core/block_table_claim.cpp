// SPDX-License-Identifier: Apache-2.0
// What a transition, the status and the host's reads of parked bytes ask of the block table.
#include <algorithm>
#include <cinttypes>

#include "allocator/core/block_table.hpp"

namespace lowtide {

BlockTable::Claim BlockTable::claim(const std::optional<TagName>& tag, bool (*wanted)(const Extent&)) {
  // In the claim only when they are busy: one that ends frees what it has.
  std::vector<Extent*> extents;
  Claim claim(*this);
  const std::lock_guard lock(mutex_);
  for (auto& region : regions_) {
    if (tag && region.label.tag != *tag) continue;
    for (auto& [start, extent] : region.extents) {
      if (!extent.busy && wanted(extent)) extents.push_back(&extent);
    }
  }
  for (Extent* extent : extents) extent->busy = true;
  claim.extents = std::move(extents);
  return claim;
}

BlockTable::Claim::~Claim() {
  if (table_ == nullptr) return;
  const auto goes = [](const Extent* extent) { return extent->blocks == 0 && extent->empty(); };
  for (Extent* extent : extents) {
    if (goes(extent)) table_->end_reservation(*extent);
  }
  {
    const std::lock_guard lock(table_->mutex_);
    for (Extent* extent : extents) {
      extent->busy = false;
      if (goes(extent)) table_->remove(*extent);
    }
  }
  table_->finish_frees();
}

bool BlockTable::knows(const TagName& tag) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const Region& region) { return region.label.tag == tag; });
}

bool BlockTable::has_parked(const std::optional<TagName>& tag) const noexcept {
  const auto parked = [](const auto& entry) { return entry.second.blocks > 0 && !entry.second.resident; };
  const std::lock_guard lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const Region& region) {
    return (!tag || region.label.tag == *tag) && std::any_of(region.extents.begin(), region.extents.end(), parked);
  });
}

std::vector<RegionInfo> BlockTable::regions() const {
  const std::lock_guard lock(mutex_);
  std::vector<RegionInfo> infos;
  infos.reserve(regions_.size());
  // One piece of host memory, however many tags there ever were: this is also called as memory is short.
  std::vector<std::pair<const Region*, std::size_t>> of_region;
  of_region.reserve(regions_.size());
  for (const auto& region : regions_) {
    RegionInfo info{region.label, region.backend.device()};
    info.stable_address = region.backend.capabilities().stable_address;
    for (const auto& [start, extent] : region.extents) {
      info.blocks += extent.blocks;
      (extent.resident ? info.resident : info.parked) += extent.requested;
      if (extent.holds_memory()) {
        info.on_device += extent.requested;
        info.slack += extent.range().size - extent.requested;
      }
      // The backup of a busy extent belongs to the transition that holds it.
      if (!extent.busy && extent.backup) info.backup += extent.backup->size();
      if (!extent.busy && extent.held_back) info.backup += extent.held_back->size();
      if (extent.shared_by != nullptr) info.shared_by = extent.shared_by;
    }
    of_region.emplace_back(&region, infos.size());
    infos.push_back(info);
  }
  std::sort(of_region.begin(), of_region.end());
  for (const auto& [start, block] : blocks_) {
    const std::pair<const Region*, std::size_t> wanted{&block.extent->region, 0};
    RegionInfo& info = infos[std::lower_bound(of_region.begin(), of_region.end(), wanted)->second];
    info.residue += block.content.residue.bytes();
    if (block.content.freshness == Freshness::valid) continue;
    info.stale += block.range.size;
    info.freshness = std::max(info.freshness, block.content.freshness);
  }
  return infos;
}

std::map<OriginId, BlockTable::Share> BlockTable::shares() const {
  const std::lock_guard lock(mutex_);
  std::map<OriginId, Share> shares;
  for (const auto& [start, block] : blocks_) {
    auto& share = shares[block.origin];
    ++share.blocks;
    share.bytes += block.range.size;
  }
  return shares;
}

Result<BlockTable::ParkedBlock> BlockTable::claim_backup(AddressRange range, Claim& claim, Copies copies) {
  claim.extents.reserve(1);
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(range.start);
  Block* block = after == blocks_.begin() ? nullptr : &std::prev(after)->second;
  if (block == nullptr || !block->range.contains(range.start) || range.size > block->range.end() - range.start) {
    return fail(Error::format(Code::invalid, "[0x%" PRIx64 ", +%" PRIu64 ") does not lie in one block",
                              range.start.value, range.size.value));
  }
  Extent& extent = *block->extent;
  if (extent.busy) return fail(Code::busy, "another call works on this block");
  Backup* const backup = extent.resident && copies == Copies::kept ? extent.retained.get() : extent.backup.get();
  if (extent.resident && (copies == Copies::parked || backup == nullptr))
    return fail(Code::invalid, "the block is resident: copy it from the device");
  if (backup == nullptr || (!extent.resident && !block->content.copied))
    return fail(Code::invalid, "the block was discarded: it has no backup");
  extent.busy = true;
  claim.extents.push_back(&extent);
  return ParkedBlock{*backup, extent.range(), *block};
}

Status BlockTable::read_backup(AddressRange range, void* host, Copies copies) {
  Claim claim(*this);
  const auto parked = claim_backup(range, claim, copies);
  if (!parked) return fail(parked.error());
  if (range.size.value == 0) return {};  // `host` may be null
  return parked->backup.read(range.start - parked->extent.start, host, range.size);
}

Status BlockTable::write_backup(AddressRange range, const void* host) {
  Claim claim(*this);
  const auto parked = claim_backup(range, claim, Copies::parked);
  if (!parked) return fail(parked.error());
  if (range.size.value == 0) return {};  // `host` may be null
  if (auto status = parked->backup.write(range.start - parked->extent.start, host, range.size); !status) return status;
  const std::lock_guard lock(mutex_);
  const AddressRange& whole = parked->block.range;
  BlockContent& content = parked->block.content;
  if (content.freshness == Freshness::valid) return {};
  content.written.add(range.start - whole.start, range.size);
  const bool refilled = content.written.covers({}, whole.size);
  if (refilled && content.freshness == Freshness::stale) content.freshness = Freshness::valid;
  return {};
}

Result<std::span<const std::byte>> BlockTable::view_backup(DeviceAddress address, Copies copies) {
  Claim claim(*this);
  const auto parked = claim_backup({address, Bytes{1}}, claim, copies);
  if (!parked) return fail(parked.error());
  const auto bytes = parked->backup.view(address - parked->extent.start);
  if (!bytes) return fail(bytes.error());
  return bytes->first(std::min<std::size_t>(bytes->size(), (parked->block.range.end() - address).value));
}

}  // namespace lowtide
