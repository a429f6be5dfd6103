// SPDX-License-Identifier: Apache-2.0
// What the backups of both stores do with their pages: parts of an extent's content, in order, each with `offset` and
// `size` in the extent, `end()`, and `digest`.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <vector>

#include "allocator/base/page_digest.hpp"
#include "allocator/core/backup_store.hpp"

namespace lowtide {

/// Whether a page at `offset` of its extent begins a reservation: a driver refuses one copy from two of them.
inline bool begins_reservation(const Backend& backend, Bytes offset) {
  return offset.value == 0 && backend.capabilities().reserves_each;
}

/// How many digests are asked for at a time.
constexpr std::size_t digests_at_once = 1024;

/// The size of the page that begins at `offset` in the extent, of which `left` bytes of content are left: up to the
/// next multiple of a page, so that a page is found again by the next pause.
constexpr Bytes page_size(Bytes offset, Bytes left) {
  return std::min(left, digest_page - Bytes{offset.value % digest_page.value});
}

/// The bytes that are to be saved.
inline Bytes content_of(std::span<const SaveRequest> requests) {
  Bytes content;
  for (const SaveRequest& request : requests) {
    for (const AddressRange& range : request.content) content += range.size;
  }
  return content;
}

template <class Page>
Bytes size_of(const std::vector<Page>& pages) noexcept {
  Bytes total;
  for (const Page& page : pages) total += page.size;
  return total;
}

/// Calls visit(page, first byte in it, bytes), which answers with a status, for the parts of the range in order.
/// Code::invalid if a byte of it lies in no page.
template <class Page, class Visit>
Status walk_pages(const std::vector<Page>& pages, Bytes offset, Bytes size, Visit visit) {
  const auto after =
      std::upper_bound(pages.begin(), pages.end(), offset, [](Bytes at, const Page& page) { return at < page.offset; });
  for (auto page = after == pages.begin() ? after : std::prev(after); size.value > 0; ++page) {
    if (page == pages.end() || offset < page->offset || offset >= page->end()) {
      return fail(Error::format(Code::invalid, "byte %" PRIu64 " of the extent has no backup", offset.value));
    }
    const Bytes skipped = offset - page->offset;
    const Bytes count = std::min(size, page->size - skipped);
    if (auto status = visit(*page, skipped, count); !status) return status;
    offset += count;
    size -= count;
  }
  return {};
}

/// Code::corrupt if the device, whose extent starts at `start`, does not hold the bytes that the digests of `pages` are
/// of. Where the device cannot say, `digest_of_copy(page)` is asked. `where` says in the message where the backup is.
template <class Page, class DigestOfCopy>
Status check_loaded_pages(Backend& backend, DeviceAddress start, std::span<const Page* const> pages, const char* where,
                          DigestOfCopy digest_of_copy) {
  std::vector<AddressRange> ranges;
  std::vector<PageDigest> loaded;
  for (; !pages.empty(); pages = pages.subspan(ranges.size())) {
    ranges.clear();
    for (const Page* page : pages.first(std::min(digests_at_once, pages.size()))) {
      ranges.push_back({start + page->offset, page->size});
    }
    loaded.resize(ranges.size());
    const auto status = backend.digest(ranges, loaded);
    if (!status && status.error().code() != Code::unsupported) return status;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (!status) {
        const Result<PageDigest> copy = digest_of_copy(*pages[i]);
        if (!copy) return fail(copy.error());
        loaded[i] = *copy;
      }
      if (loaded[i] == pages[i]->digest) continue;
      return fail(Error::format(Code::corrupt,
                                "the backup of [0x%" PRIx64 ", +%" PRIu64 ")%s does not hold what was saved: its "
                                "digest differs. It was not resumed",
                                ranges[i].start.value, ranges[i].size.value, where));
    }
  }
  return {};
}

}  // namespace lowtide
