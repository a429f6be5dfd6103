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

/// The kernels that work on pages, in one context, which is current during each call; one call at a time. A handle:
/// whoever has it last calls destroy, unless the context is gone, with which all goes that this holds.
///
/// Everything is made at once, and the kernels have run before `make` returns: later work takes no device memory,
/// under lazy loading neither. For the same reason the list of pages and the results lie in host memory, which the
/// kernels reach directly: a full device can still be paused.
class PageWorker {
 public:
  PageWorker() = default;
  /// An error where the driver does not load the kernels, or they do not say what the host says, with `key`.
  static Result<PageWorker> make(const Driver& driver, const DigestKey& key);
  /// Waits; what cannot be waited for stays until the end of its context.
  void destroy() noexcept;

  // After an error a kernel may still run, until `wait` succeeds.
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) const;
  Status fill_blank(std::span<const AddressRange> pages) const;
  Status count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) const;
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
    std::uint64_t* counts() { return digests.front().words.data(); }  ///< in the place of the digests
  };

  explicit PageWorker(const Driver& driver) : driver_(&driver) {}
  Status load();
  Status load_blank();
  Status upload(const DigestKey& key) const;
  /// Lets the kernels work on some bytes of the batch itself.
  Status try_digest(const DigestKey& key) const;
  Status try_blank() const;
  // Each runs a kernel over the first `count` pages of the batch.
  Status run_digest(std::size_t count) const;
  Status run_fill(std::size_t count) const;
  Status run_count(std::size_t count) const;
  Status launch(CUfunction kernel, std::size_t count, void** arguments) const;
  /// Puts `pages` into the batch, as many at a time as it has room for, and calls `work(first, count)`.
  template <class Work>
  Status in_batches(std::span<const AddressRange> pages, Work work) const;

  const Driver* driver_ = nullptr;
  CUmodule digest_module_ = nullptr;
  CUmodule blank_module_ = nullptr;
  CUfunction digest_ = nullptr;
  CUfunction fill_ = nullptr;
  CUfunction count_ = nullptr;
  CUdeviceptr key_ = 0;
  CUstream stream_ = nullptr;
  Batch* batch_ = nullptr;
};

/// A device's digesters and the key that they share. Thread-safe; one digest runs at a time, and the end of a context
/// waits for one that runs there.
class PageWorkers {
 public:
  /// `driver` outlives this.
  explicit PageWorkers(const Driver& driver);
  PageWorkers(const PageWorkers&) = delete;
  PageWorkers& operator=(const PageWorkers&) = delete;
  ~PageWorkers();

  /// In `context`, which is current. What cannot be made is no error here: the calls say so then.
  void attach(CUcontext context);
  void detach(CUcontext context) noexcept;
  // As the port says. Code::unsupported without a usable context.
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests);
  Status fill_blank(std::span<const AddressRange> pages);
  Status count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts);
  /// Waits for a kernel that an earlier call could not wait for; costs nothing if there is none.
  Status settle();
  const DigestKey& key() const noexcept { return key_; }

 private:
  struct Entry {
    CUcontext context;
    PageWorker worker;
  };
  void refuse(const Error& why);
  /// Calls `work(worker)` in its context.
  template <class Work>
  Status with_worker(std::span<const AddressRange> pages, Work work);

  const Driver& driver_;
  DigestKey key_;
  std::mutex mutex_;
  /// Fixed in size, as the backend's contexts are.
  std::array<Entry, 32> entries_{};
  std::size_t count_ = 0;
  std::atomic<CUcontext> unsettled_{nullptr};  ///< where a call failed: its kernel may still run
  Error refusal_;                              ///< why there is no entry
  bool has_key_;
  bool refused_ = false;
};

}  // namespace lowtide::cuda
