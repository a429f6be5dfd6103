// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "allocator/backup/pinned_backup.hpp"
#include "allocator/backup/pinned_store.hpp"
#include "allocator/backup/slab_maker.hpp"

namespace lowtide {

/// One save into pinned memory: `plan`, which changes nothing, then `copy`, then `finish`.
///
/// The first pause copies into a slab while others are still being pinned; a later one finds its memory, and leaves out
/// the pages whose digests are those of the copy that is there.
class PinnedSave {
 public:
  PinnedSave(PinnedStore& store, std::span<SaveRequest> requests, const ProgressSink& progress)
      : store_(store), requests_(requests), progress_sink_(progress) {}

  /// Cuts the content into pages, finds those that older backups have, and whether the host has room for the others.
  Status plan();
  /// Starts all copies. From here on the requests have their new backups, whose bytes are not there yet.
  Status copy();
  /// Waits for the copies, also after an error in `copy`; the first error is put in `result`. False if copies may still
  /// be in flight.
  bool finish(Status& result);

 private:
  struct Planned {
    std::vector<PinnedPage> pages;  ///< with the place and the digest of an older copy, if there is one
    std::vector<bool> reused;       ///< by page of the older backup: it goes on in `pages`
  };
  struct Work {
    Backend* backend;
    DeviceAddress address;
    PinnedPage* page;
  };
  /// Pages that follow each other on both sides, and are copied at once.
  struct Run {
    Backend* backend = nullptr;
    const Slab* slab = nullptr;
    unsigned char* host = nullptr;
    AddressRange range;
  };

  Slab::Source source(Backend& backend, HostReservation& reservation) const noexcept {
    return {backend, store_.budget(), reservation};
  }
  Bytes at_least_missing() const;
  Bytes missing_for_pages() const;
  Status reserve(Bytes missing);
  Result<std::unique_ptr<Slab>> make_small(Backend& backend);
  void plan_request(const SaveRequest& request, Planned& planned);
  void adopt();
  Status copy_part(std::span<const Work> part);
  /// Which of the pages are as their copies are, so far as digests are known; notes the new digests.
  Status compare(std::span<const Work> part);
  Status place(Backend& backend, PinnedPage& page);
  Status add_to_run(const Work& work);
  Status flush();
  void tell(Bytes more);

  PinnedStore& store_;
  std::span<SaveRequest> requests_;
  const ProgressSink& progress_sink_;
  std::vector<Planned> planned_;
  Bytes missing_;  ///< host memory that has to be got
  HostReservation reservation_;
  bool with_digests_ = false;
  std::optional<SlabMaker> maker_;
  std::vector<Backend*> used_;
  std::vector<Work> work_;            ///< all pages, in order
  std::vector<AddressRange> ranges_;  ///< of the pages that are compared
  std::vector<PageDigest> digests_;
  std::vector<bool> unchanged_;
  Run run_;
  Progress progress_;
  Bytes unfinished_;  ///< told of as started, perhaps not done
};

}  // namespace lowtide
