// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_backup.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "allocator/backup/pinned_store.hpp"

namespace lowtide {
namespace {

/// How many digests are asked for at a time.
constexpr std::size_t digests_at_once = 1024;

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

Bytes PinnedBackup::size() const noexcept {
  Bytes total;
  for (const PinnedPage& page : pages_) total += page.size;
  return total;
}

void PinnedBackup::set_parked(bool parked) noexcept {
  if (parked != parked_) store_.count_parked(size(), parked);
  parked_ = parked;
}

template <class Visit>
Status PinnedBackup::walk(Bytes offset, Bytes size, Visit visit) const {
  const auto after = std::upper_bound(pages_.begin(), pages_.end(), offset,
                                      [](Bytes at, const PinnedPage& p) { return at < p.offset; });
  for (auto page = after == pages_.begin() ? after : std::prev(after); size.value > 0; ++page) {
    if (page == pages_.end() || offset < page->offset || offset >= page->end()) {
      return fail(Error::format(Code::invalid, "byte %" PRIu64 " of the extent has no backup", offset.value));
    }
    const Bytes skipped = offset - page->offset;
    const Bytes count = std::min(size, page->size - skipped);
    visit(*page, skipped, count);
    offset += count;
    size -= count;
  }
  return {};
}

Status PinnedBackup::read(Bytes offset, void* host, Bytes size) const {
  auto* to = static_cast<unsigned char*>(host);
  return walk(offset, size, [&to](const PinnedPage& page, Bytes from, Bytes count) {
    std::memcpy(to, page.place.memory + from.value, count.value);
    to += count.value;
  });
}

Status PinnedBackup::write(Bytes offset, const void* host, Bytes size) {
  const auto* from = static_cast<const unsigned char*>(host);
  return walk(offset, size, [&](const PinnedPage& page, Bytes to, Bytes count) {
    std::memcpy(page.place.memory + to.value, from, count.value);
    from += count.value;
    pages_[static_cast<std::size_t>(&page - pages_.data())].state = PinnedPage::Digest::none;
  });
}

Result<std::span<const std::byte>> PinnedBackup::view(Bytes offset) const {
  const unsigned char* start = nullptr;
  const PinnedPage* last = nullptr;
  auto status = walk(offset, Bytes{1}, [&](const PinnedPage& page, Bytes skipped, Bytes) {
    start = page.place.memory + skipped.value;
    last = &page;
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
  std::vector<AddressRange> ranges;
  std::vector<PageDigest> loaded;
  for (std::size_t first = 0; first < known.size(); first += digests_at_once) {
    const auto part = std::span(known).subspan(first, std::min(digests_at_once, known.size() - first));
    ranges.clear();
    for (const PinnedPage* page : part) ranges.push_back({start + page->offset, page->size});
    loaded.resize(part.size());
    auto status = backend.digest(ranges, loaded);
    if (!status && status.error().code() != Code::unsupported) return status;
    for (std::size_t i = 0; i < part.size(); ++i) {
      // Where the device cannot say, the host's copy is what was loaded.
      if (!status) loaded[i] = digest_of(part[i]->place.memory, part[i]->size.value, backend.digest_key());
      if (loaded[i] == part[i]->digest) continue;
      return fail(Error::format(Code::corrupt,
                                "the backup of [0x%" PRIx64 ", +%" PRIu64 ") does not hold what was saved: its digest "
                                "differs. It was not resumed",
                                ranges[i].start.value, ranges[i].size.value));
    }
  }
  return {};
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
