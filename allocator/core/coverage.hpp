// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "allocator/core/block_table.hpp"
#include "allocator/core/settings.hpp"
#include "allocator/core/transition_devices.hpp"

namespace lowtide {

// Whether an update wrote all that came back stale: the resume fills it, the end of the update looks for what is left.

/// Whether stale blocks of `extent` are copied as valid ones are: the owner of its tag never said when content is
/// valid, by no update and no setting, and may have written it anew.
bool copies_stale(const BlockTable& table, const CoreSettings& settings, const Extent& extent);

/// Whether what comes back stale of `extent` is filled.
bool is_covered(const CoreSettings& settings, const Extent& extent);

/// Fills the stale blocks of extents that a resume brings back; the copies into them are done. What is held back of the
/// bytes behind a block's last whole word is put back already.
Status fill_stale(const BlockTable& table, const CoreSettings& settings, std::span<Extent* const> extents);

/// What an update did not write.
class UpdateCheck {
 public:
  /// `extents` are a claim of resident ones, of one tag; all outlive it.
  UpdateCheck(BlockTable& table, const CoreSettings& settings, std::span<Extent* const> extents);

  /// Whether anything was filled; if not there is nothing to look for.
  bool has_blank() const noexcept { return !found_.empty(); }
  /// Looks on the devices, once their work is done.
  Status scan();
  /// Code::refused, naming blocks and bytes, if a part was not written of which no copy is held back, and `tag` is to
  /// be covered; where it is to be warned of, that is a line in the log.
  Status complain(const TagName& tag) const;
  /// Puts back what was held back of the parts that were not written, and keeps in mind which they are. Can be repeated
  /// after an error.
  Status put_back();

 private:
  struct Found {
    Extent* extent;
    std::vector<AddressRange> blank;  ///< blocks, without `rests`
    std::vector<AddressRange> runs;   ///< what of them was not written
    std::vector<AddressRange> rests;  ///< of fewer than a word, with their old bytes since the resume or with new ones
  };
  Status put_back(const Found& found, AddressRange part, std::vector<std::byte>& buffer) const;
  struct Missing {
    Bytes bytes;
    std::size_t parts = 0;
    AddressRange first{};
    DeviceId device{};
  };
  /// Of the extents whose tag is covered by `wanted`.
  template <class Wanted>
  Missing missing(Wanted wanted) const;

  BlockTable& table_;
  const CoreSettings& settings_;
  std::vector<Found> found_;
};

}  // namespace lowtide
