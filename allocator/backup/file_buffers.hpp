// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "allocator/backup/slab.hpp"

namespace lowtide {

/// Two equal pieces of registered host memory between a device and a file: while the device copies to or from the one,
/// the other is written or read. Made at the first need.
class FileBuffers {
 public:
  static constexpr Bytes size = 16_MiB;

  explicit FileBuffers(HostBudget& budget) : budget_(budget) {}

  /// Keeps them until its end. One at a time: by whose transition it is.
  class Use {
   public:
    explicit Use(FileBuffers& buffers) : buffers_(buffers) { buffers_.set_in_use(true); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { buffers_.set_in_use(false); }

    /// Code::host_budget if there is no memory for them. Before anything else.
    Status make(Backend& backend) { return buffers_.make(backend); }
    /// The one that no copy touches.
    unsigned char* idle() const noexcept { return buffers_.memory(buffers_.idle_); }
    /// Copies between `backend` and the idle one are about to start: it is the busy one now. No copy touched the other,
    /// which is the idle one from now on.
    void begin_copies(Backend& backend) noexcept {
      buffers_.copying_ = &backend;
      buffers_.idle_ = 1 - buffers_.idle_;
    }
    unsigned char* busy() const noexcept { return buffers_.memory(1 - buffers_.idle_); }
    /// Waits for the copies that were begun last. After an error they may go on until it succeeds.
    Status wait() { return buffers_.wait(); }

   private:
    FileBuffers& buffers_;
  };

  /// Gives them back to the host, unless they are used, or copies may still touch them.
  void release() noexcept;
  Bytes held() const noexcept { return {held_.load(std::memory_order_relaxed)}; }

 private:
  void set_in_use(bool used) noexcept;
  Status make(Backend& backend);
  Status wait();
  unsigned char* memory(std::size_t index) const noexcept;

  HostBudget& budget_;
  std::mutex mutex_;  ///< between who uses them and who releases them
  bool in_use_ = false;
  std::unique_ptr<Slab> slab_;
  std::atomic<std::uint64_t> held_{0};
  std::size_t idle_ = 0;
  bool told_ = false;           ///< that copies are slow
  Backend* copying_ = nullptr;  ///< which may still touch the busy one
};

}  // namespace lowtide
