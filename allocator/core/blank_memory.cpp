// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/blank_memory.hpp"

#include <algorithm>

namespace lowtide {
namespace {

/// What one call of the port takes. No page is only the rest of a word, which could not be told from chance: the one
/// before it is then a word shorter.
std::vector<AddressRange> pages_of(std::span<const AddressRange> ranges) {
  std::vector<AddressRange> pages;
  for (AddressRange left : ranges) {
    while (left.size.value > 0) {
      Bytes size = std::min(left.size, digest_page);
      const Bytes rest = left.size - size;
      if (rest.value > 0 && rest.value < blank_unit) size -= Bytes{blank_unit};
      pages.push_back({left.start, size});
      left = {left.start + size, left.size - size};
    }
  }
  return pages;
}

Status fill_from_host(Backend& backend, std::span<const AddressRange> pages) {
  std::vector<std::byte> buffer(digest_page.value);
  for (const AddressRange& page : pages) {
    fill_blank(buffer.data(), page.size.value, page.start.value);
    if (auto status = backend.copy_in(page, buffer.data()); !status) return status;
    if (auto status = backend.finish_copies(); !status) return status;
  }
  return {};
}

/// Runs of blank bytes, each put behind the last.
class Runs {
 public:
  void begin_range() { joins_ = false; }
  void add(AddressRange run) {
    if (joins_ && found.back().end() == run.start)
      found.back().size += run.size;
    else
      found.push_back(run);
    joins_ = true;
  }
  std::vector<AddressRange> found;

 private:
  bool joins_ = false;
};

/// Looks at a copy of the page.
Status scan_on_host(Backend& backend, AddressRange page, std::vector<std::byte>& buffer, Runs& runs) {
  buffer.resize(digest_page.value);
  if (auto status = backend.copy_out(buffer.data(), page); !status) return status;
  if (auto status = backend.finish_copies(); !status) return status;
  for_each_blank_run(buffer.data(), page.size.value, page.start.value, [&](std::size_t offset, std::size_t bytes) {
    runs.add({page.start + Bytes{offset}, {bytes}});
  });
  return {};
}

}  // namespace

Status fill_blank(Backend& backend, std::span<const AddressRange> ranges) {
  const auto pages = pages_of(ranges);
  if (pages.empty()) return {};
  auto status = backend.fill_blank(pages);
  return !status && status.error().code() == Code::unsupported ? fill_from_host(backend, pages) : status;
}

Result<std::vector<AddressRange>> find_blank(Backend& backend, std::span<const AddressRange> ranges) {
  const auto pages = pages_of(ranges);
  if (pages.empty()) return std::vector<AddressRange>();
  std::vector<std::uint64_t> counts(pages.size());
  auto status = backend.count_blank(pages, counts);
  const bool counted = status.has_value();
  if (!counted && status.error().code() != Code::unsupported) return fail(status.error());
  Runs runs;
  std::vector<std::byte> buffer;
  std::size_t range = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const AddressRange& page = pages[i];
    while (range < ranges.size() && ranges[range].size.value == 0) ++range;
    if (range < ranges.size() && ranges[range].start == page.start) {
      runs.begin_range();
      ++range;
    }
    if (counted && counts[i] == 0) continue;
    if (counted && counts[i] == page.size.value) {
      runs.add(page);
      continue;
    }
    if (status = scan_on_host(backend, page, buffer, runs); !status) return fail(status.error());
  }
  return std::move(runs.found);
}

}  // namespace lowtide
