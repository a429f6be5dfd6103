// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/backup/slab.hpp"
#include "allocator/base/quiet_thread.hpp"
#include "allocator/core/right_of_way.hpp"

namespace lowtide {

/// Gets slabs for one pause: their pages by several threads, since one thread gets them at a tenth of the link's speed,
/// while the caller registers and fills those that are ready. A need of one slab is served by the calling thread.
class SlabMaker {
 public:
  /// What is made: `need` bytes in all, with at most `threads` threads, which start now. The program's allocations go
  /// before each registration.
  SlabMaker(const Slab::Source& source, RightOfWay& right_of_way, Bytes need, unsigned threads);
  SlabMaker(const SlabMaker&) = delete;
  SlabMaker& operator=(const SlabMaker&) = delete;
  /// Waits for the threads. Slabs that nobody took are given back to the host.
  ~SlabMaker();

  /// The next slab, registered, waiting for it; null when all were taken. An error is the first that a thread met.
  Result<std::unique_ptr<Slab>> next();

 private:
  Result<std::unique_ptr<Slab>> take();
  bool start(QuietThread& thread) noexcept;
  Bytes claim_size() noexcept;
  void work() noexcept;
  void deliver(Result<std::unique_ptr<Slab>> slab) noexcept;

  const Slab::Source source_;
  RightOfWay& right_of_way_;
  std::mutex mutex_;
  std::condition_variable delivered_;
  Bytes to_claim_;          ///< nobody makes it yet
  std::size_t to_deliver_;  ///< slabs that are not delivered yet
  bool called_off_ = false;
  std::deque<std::unique_ptr<Slab>> ready_;
  std::optional<Error> error_;
  std::vector<QuietThread> threads_;
};

}  // namespace lowtide
