// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_store.hpp"

#include <algorithm>
#include <cstring>

#include "allocator/backup/host_memory.hpp"
#include "allocator/base/log.hpp"

namespace lowtide {
namespace {

unsigned char* host_pointer(AddressRange range) { return reinterpret_cast<unsigned char*>(range.start.value); }

}  // namespace

/// The pieces of one extent, in order.
class PinnedStore::PinnedBackup final : public Backup {
 public:
  explicit PinnedBackup(PinnedStore& store) : store_(store) {}
  PinnedBackup(const PinnedBackup&) = delete;
  PinnedBackup& operator=(const PinnedBackup&) = delete;
  ~PinnedBackup() override {
    for (const Piece& piece : pieces) store_.give_back(piece);
  }

  Bytes size() const noexcept override { return total; }
  Status read(Bytes offset, void* host, Bytes size) const override {
    auto* to = static_cast<unsigned char*>(host);
    walk(offset, size, [&to](unsigned char* bytes, std::size_t count) {
      std::memcpy(to, bytes, count);
      to += count;
    });
    return {};
  }
  Status write(Bytes offset, const void* host, Bytes size) override {
    const auto* from = static_cast<const unsigned char*>(host);
    walk(offset, size, [&from](unsigned char* bytes, std::size_t count) {
      std::memcpy(bytes, from, count);
      from += count;
    });
    return {};
  }

  std::vector<Piece> pieces;
  Bytes total;

 private:
  template <class Visit>
  void walk(Bytes offset, Bytes size, Visit visit) const {
    for (const Piece& piece : pieces) {
      if (size.value == 0) return;
      if (offset >= piece.host.size) {
        offset -= piece.host.size;
        continue;
      }
      const Bytes count = std::min(size, piece.host.size - offset);
      visit(host_pointer(piece.host) + offset.value, count.value);
      offset = {};
      size -= count;
    }
  }

  PinnedStore& store_;
};

Status PinnedStore::save(std::span<SaveRequest> requests, const ProgressSink& progress) {
  Progress copied;
  for (auto& request : requests) {
    request.backup.reset();  // an older backup is out of date; its memory serves the new one
    copied.total += request.range.size;
  }
  if (auto status = host_has_room(copied.total, retained_bytes()); !status) return status;

  Status result;
  try {
    for (auto& request : requests) {
      if (result = save_one(request); !result) break;
      copied.done += request.range.size;
      if (progress) progress(copied);
    }
  } catch (const std::bad_alloc&) {
    result = fail(Code::host_budget, "the host has no memory for the bookkeeping of a backup");
  }
  if (auto status = finish_copies(); !status && result) result = status;
  if (!result) {
    for (auto& request : requests) request.backup.reset();
  }
  release(take_empty_slabs());
  return result;
}

Status PinnedStore::finish_copies() noexcept {
  Status first;
  bool all_ended = true;
  for (Backend* backend : used_) {
    auto status = backend->finish_copies();
    if (status) continue;
    if (first) first = status;
    if (!backend->finish_copies()) all_ended = false;  // once more: now only to know that nothing is in flight
  }
  if (all_ended) used_.clear();
  const std::lock_guard lock(mutex_);
  in_doubt_ = !all_ended;
  return first;
}

Status PinnedStore::save_one(SaveRequest& request) {
  // The request owns the backup from the start: after an error its pieces live until the copies in flight have ended.
  auto owned = std::make_unique<PinnedBackup>(*this);
  PinnedBackup& backup = *owned;
  request.backup = std::move(owned);
  if (std::find(used_.begin(), used_.end(), request.backend) == used_.end()) used_.push_back(request.backend);
  while (backup.total < request.range.size) {
    auto& pieces = backup.pieces;
    // Before the piece is taken, so that it cannot be lost.
    if (pieces.size() == pieces.capacity()) pieces.reserve(2 * pieces.size() + 1);
    const auto piece = take(*request.backend, request.range.size - backup.total);
    if (!piece) return fail(piece.error());
    pieces.push_back(*piece);
    // The copy runs while memory for the next piece is got.
    const AddressRange part{request.range.start + backup.total, piece->host.size};
    backup.total += piece->host.size;
    if (auto status = request.backend->copy_out(host_pointer(piece->host), part); !status) return status;
  }
  return {};
}

Result<PinnedStore::Piece> PinnedStore::take(Backend& backend, Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& slab : slabs_) {
      if (const auto range = slab->slots.take_up_to(size)) return Piece{slab.get(), *range};
    }
  }
  Slabs made(1);
  auto slab = Slab::make(backend, Slab::usual_size);
  if (!slab) return fail(slab.error());
  made.front() = std::move(*slab);
  if (!made.front()->registered()) {
    log(LogLevel::warning, "the driver does not register host memory here: copies run at a tenth of the link's speed");
  }
  Slab& fresh = *made.front();
  const std::lock_guard lock(mutex_);
  slabs_.splice(slabs_.begin(), made);
  return Piece{&fresh, *fresh.slots.take_up_to(size)};
}

Status PinnedStore::begin_load(Backend& backend, AddressRange range, const Backup& backup) {
  Bytes done;
  for (const Piece& piece : static_cast<const PinnedBackup&>(backup).pieces) {
    if (auto status = backend.copy_in({range.start + done, piece.host.size}, host_pointer(piece.host)); !status) {
      return status;
    }
    done += piece.host.size;
  }
  return {};
}

void PinnedStore::give_back(const Piece& piece) noexcept {
  {
    const std::lock_guard lock(mutex_);
    piece.slab->slots.give_back(piece.host.start);
    if (settings_.retain == BackupSettings::Retain::automatic || !piece.slab->empty()) return;
  }
  release(take_empty_slabs());
}

void PinnedStore::release(Slabs slabs) noexcept {
  for (auto slab = slabs.begin(); slab != slabs.end();) {
    slab = (*slab)->unregister() ? slabs.erase(slab) : std::next(slab);
  }
  const std::lock_guard lock(mutex_);
  slabs_.splice(slabs_.end(), slabs);
}

PinnedStore::Slabs PinnedStore::take_empty_slabs() noexcept {
  Slabs empty;
  const std::lock_guard lock(mutex_);
  if (in_doubt_) return empty;
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const auto next = std::next(slab);
    if ((*slab)->empty()) empty.splice(empty.begin(), slabs_, slab);
    slab = next;
  }
  return empty;
}

Bytes PinnedStore::backup_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  Bytes used;
  for (const auto& slab : slabs_) used += slab->size() - slab->slots.free_bytes();
  return used;
}

Bytes PinnedStore::retained_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  Bytes unused;
  for (const auto& slab : slabs_) unused += slab->slots.free_bytes();
  return unused;
}

void PinnedStore::set_settings(BackupSettings settings) {
  const std::lock_guard lock(mutex_);
  settings_ = settings;
}

}  // namespace lowtide
