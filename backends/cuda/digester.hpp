// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <span>

#include "allocator/base/page_digest.hpp"
#include "allocator/core/types.hpp"
#include "backends/cuda/driver.hpp"

namespace lowtide::cuda {

/// The digest kernel in one context, which is current during each call; one call at a time. A handle: whoever has it
/// last calls destroy, unless the context is gone, with which all goes that this holds.
///
/// Everything is made at once, and the kernel has run before `make` returns: a later digest takes no device memory,
/// under lazy loading neither. For the same reason the list of pages and the results lie in host memory, which the
/// kernel reaches directly: a full device can still be paused.
class Digester {
 public:
  Digester() = default;
  /// An error where the driver does not load the kernel, or the kernel does not say what `key` says on the host.
  static Result<Digester> make(const Driver& driver, const DigestKey& key);
  /// Waits; what cannot be waited for stays until the end of its context.
  void destroy() noexcept;

  /// After an error the kernel may still run, until `wait` succeeds.
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) const;
  Status wait() const;

 private:
  struct Page {
    std::uint64_t address;
    std::uint64_t bytes;
  };
  /// 768 KiB, for 32 GiB in one launch.
  struct Batch {
    static constexpr std::size_t most = std::size_t{16} << 10;
    std::array<Page, most> pages;
    std::array<PageDigest, most> digests;
  };

  explicit Digester(const Driver& driver) : driver_(&driver) {}
  Status load();
  Status upload(const DigestKey& key) const;
  /// Lets the kernel digest some bytes of the batch itself.
  Status try_out(const DigestKey& key) const;
  /// Runs the kernel over the first `count` pages of the batch.
  Status run(std::size_t count) const;

  const Driver* driver_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr key_ = 0;
  CUstream stream_ = nullptr;
  Batch* batch_ = nullptr;
};

/// A device's digesters and the key that they share. Thread-safe; one digest runs at a time, and the end of a context
/// waits for one that runs there.
class Digesters {
 public:
  /// `driver` outlives this.
  explicit Digesters(const Driver& driver);
  Digesters(const Digesters&) = delete;
  Digesters& operator=(const Digesters&) = delete;
  ~Digesters();

  /// In `context`, which is current. What cannot be made is no error here: digest says so then.
  void attach(CUcontext context);
  void detach(CUcontext context) noexcept;
  /// Of pages of any alignment. Code::unsupported without a usable context.
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests);
  /// Waits for a kernel that an earlier digest could not wait for; costs nothing if there is none.
  Status settle();
  const DigestKey& key() const noexcept { return key_; }

 private:
  struct Entry {
    CUcontext context;
    Digester digester;
  };
  void refuse(const Error& why);

  const Driver& driver_;
  DigestKey key_;
  std::mutex mutex_;
  /// Fixed in size, as the backend's contexts are.
  std::array<Entry, 32> entries_{};
  std::size_t count_ = 0;
  std::atomic<CUcontext> unsettled_{nullptr};  ///< where a digest failed: its kernel may still run
  Error refusal_;                              ///< why there is no entry
  bool has_key_;
  bool refused_ = false;
};

}  // namespace lowtide::cuda
