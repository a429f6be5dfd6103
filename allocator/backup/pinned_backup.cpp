// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_backup.hpp"

#include <algorithm>
#include <cstring>

#include "allocator/backup/pages.hpp"
#include "allocator/backup/pinned_store.hpp"

namespace lowtide {
namespace {

bool follows(const PinnedPage& page, const PinnedPage& next) {
  // A driver refuses a copy that begins in registered memory and ends outside of that registration.
  return next.offset == page.end() && next.place.slab == page.place.slab &&
         next.place.memory == page.place.memory + page.size.value;
}

}  // namespace

PinnedBackup::~PinnedBackup() {
  set_parked(false);
  for (const PinnedPage& page : pages_) {
    if (page.place) store_.arena().give_back(page.place);
  }
  store_.release_if_none_is_kept();
}

Bytes PinnedBackup::size() const noexcept { return size_of(pages_); }

void PinnedBackup::set_parked(bool parked) noexcept {
  if (parked != parked_) store_.count_parked(size(), parked);
  parked_ = parked;
}

Status PinnedBackup::read(Bytes offset, void* host, Bytes size) const {
  auto* to = static_cast<unsigned char*>(host);
  return walk_pages(pages_, offset, size, [&to](const PinnedPage& page, Bytes from, Bytes count) -> Status {
    std::memcpy(to, page.place.memory + from.value, count.value);
    to += count.value;
    return {};
  });
}

Status PinnedBackup::write(Bytes offset, const void* host, Bytes size) {
  const auto* from = static_cast<const unsigned char*>(host);
  return walk_pages(pages_, offset, size, [&](const PinnedPage& page, Bytes to, Bytes count) -> Status {
    std::memcpy(page.place.memory + to.value, from, count.value);
    from += count.value;
    pages_[static_cast<std::size_t>(&page - pages_.data())].state = PinnedPage::Digest::none;
    return {};
  });
}

Result<std::span<const std::byte>> PinnedBackup::view(Bytes offset) const {
  const unsigned char* start = nullptr;
  const PinnedPage* last = nullptr;
  auto status = walk_pages(pages_, offset, Bytes{1}, [&](const PinnedPage& page, Bytes skipped, Bytes) -> Status {
    start = page.place.memory + skipped.value;
    last = &page;
    return {};
  });
  if (!status) return fail(status.error());
  const PinnedPage* const end = pages_.data() + pages_.size();
  while (last + 1 != end && follows(*last, last[1])) ++last;
  return std::span(reinterpret_cast<const std::byte*>(start), (last->end() - offset).value);
}

Status PinnedBackup::begin_load(Backend& backend, DeviceAddress start) {
  for (std::size_t first = 0; first < pages_.size();) {
    std::size_t end = first + 1;
    Bytes size = pages_[first].size;
    for (; end < pages_.size() && follows(pages_[end - 1], pages_[end]); ++end) size += pages_[end].size;
    const AddressRange range{start + pages_[first].offset, size};
    if (auto status = backend.copy_in(range, pages_[first].place.memory); !status) return status;
    first = end;
  }
  return {};
}

Status PinnedBackup::check_loaded(Backend& backend, DeviceAddress start) const {
  if (!store_.settings().verify) return {};
  std::vector<const PinnedPage*> known;
  for (const PinnedPage& page : pages_) {
    if (page.state == PinnedPage::Digest::known) known.push_back(&page);
  }
  // Where the device cannot say, the host's copy is what was loaded.
  return check_loaded_pages<PinnedPage>(backend, start, known, "", [&](const PinnedPage& page) -> Result<PageDigest> {
    return digest_of(page.place.memory, page.size.value, backend.digest_key());
  });
}

bool PinnedBackup::join(std::span<const Neighbour> others) {
  std::size_t count = pages_.size();
  for (const Neighbour& other : others) {
    const auto* pinned = dynamic_cast<const PinnedBackup*>(other.backup);
    if (pinned == nullptr) return false;
    count += pinned->pages_.size();
  }
  pages_.reserve(count);
  set_parked(false);
  for (const Neighbour& other : others) {
    auto& next = static_cast<PinnedBackup&>(*other.backup);
    next.set_parked(false);
    for (PinnedPage& page : next.pages_) {
      page.offset += other.offset;
      pages_.push_back(page);
    }
    next.pages_.clear();
  }
  set_parked(true);
  return true;
}

std::unique_ptr<Backup> PinnedBackup::split(Bytes offset) {
  auto rest = std::make_unique<PinnedBackup>(store_);
  const auto first =
      std::find_if(pages_.begin(), pages_.end(), [&](const PinnedPage& p) { return p.offset >= offset; });
  rest->pages_.assign(first, pages_.end());
  for (PinnedPage& page : rest->pages_) page.offset -= offset;
  set_parked(false);
  pages_.erase(first, pages_.end());
  set_parked(true);
  rest->set_parked(true);
  return rest;
}

}  // namespace lowtide
