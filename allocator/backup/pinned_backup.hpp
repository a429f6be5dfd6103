// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/backup/pinned_arena.hpp"
#include "allocator/base/page_digest.hpp"
#include "allocator/core/backup_store.hpp"

namespace lowtide {

class PinnedStore;

/// A part of an extent's content, of at most `digest_page` bytes, and the host's copy of it.
struct PinnedPage {
  /// `pending`: the digest is that of bytes which are being copied. Only a `known` digest may be compared.
  enum class Digest : std::uint8_t { none, pending, known };

  Bytes offset;  ///< in the extent
  Bytes size;
  PinnedArena::Place place;
  PageDigest digest;
  Digest state = Digest::none;

  Bytes end() const noexcept { return offset + size; }
};

/// The pages of one extent, in order. While the extent is parked they are its content; while it is resident they are
/// what it held when it was resumed.
class PinnedBackup final : public Backup {
 public:
  explicit PinnedBackup(PinnedStore& store) : store_(store) {}
  PinnedBackup(const PinnedBackup&) = delete;
  PinnedBackup& operator=(const PinnedBackup&) = delete;
  ~PinnedBackup() override;

  Bytes size() const noexcept override;
  Status read(Bytes offset, void* host, Bytes size) const override;
  Status write(Bytes offset, const void* host, Bytes size) override;
  Result<std::span<const std::byte>> view(Bytes offset) const override;
  Status begin_load(Backend& backend, DeviceAddress start) override;
  Status check_loaded(Backend& backend, DeviceAddress start) const override;
  bool join(std::span<const Neighbour> others) override;
  std::unique_ptr<Backup> split(Bytes offset) override;

  std::vector<PinnedPage>& pages() noexcept { return pages_; }
  const std::vector<PinnedPage>& pages() const noexcept { return pages_; }
  /// Whether its bytes count as those of a parked extent.
  void set_parked(bool parked) noexcept;

 private:
  PinnedStore& store_;
  std::vector<PinnedPage> pages_;
  bool parked_ = false;
};

}  // namespace lowtide
