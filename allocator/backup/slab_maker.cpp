// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/slab_maker.hpp"

#include <algorithm>

namespace lowtide {

SlabMaker::SlabMaker(const Slab::Source& source, RightOfWay& right_of_way, Bytes need, unsigned threads)
    : source_(source),
      right_of_way_(right_of_way),
      to_claim_(round_up(need, Slab::unit)),
      to_deliver_((to_claim_.value + Slab::usual_size.value - 1) / Slab::usual_size.value) {
  const std::size_t count = std::min<std::size_t>(threads, to_deliver_);
  if (count < 2) return;
  threads_.resize(count);
  for (auto& thread : threads_) {
    if (!start(thread)) break;  // with fewer threads, or none, it takes longer
  }
}

// Does not throw: the threads before it are under way, and only the destructor of a whole object waits for them.
bool SlabMaker::start(QuietThread& thread) noexcept {
  try {
    return thread.start("lowtide-pin", [this] { work(); }).has_value();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

SlabMaker::~SlabMaker() {
  {
    const std::lock_guard lock(mutex_);
    called_off_ = true;
  }
  for (auto& thread : threads_) thread.join();
}

Bytes SlabMaker::claim_size() noexcept {
  const std::lock_guard lock(mutex_);
  if (called_off_) return {};
  const Bytes size = std::min(to_claim_, Slab::usual_size);
  to_claim_ -= size;
  return size;
}

void SlabMaker::work() noexcept {
  Slab::Source source = source_;
  source.own_thread = true;
  for (Bytes size = claim_size(); size.value > 0; size = claim_size()) {
    try {
      deliver(Slab::make(source, size));
    } catch (const std::bad_alloc&) {
      deliver(no_bookkeeping_memory());
    }
  }
}

void SlabMaker::deliver(Result<std::unique_ptr<Slab>> slab) noexcept {
  {
    const std::lock_guard lock(mutex_);
    try {
      if (slab) ready_.push_back(std::move(*slab));
    } catch (const std::bad_alloc&) {
      slab = no_bookkeeping_memory();
    }
    --to_deliver_;
    if (!slab) {
      if (!error_) error_ = slab.error();
      called_off_ = true;
    }
  }
  delivered_.notify_one();
}

Result<std::unique_ptr<Slab>> SlabMaker::next() {
  auto slab = take();
  if (slab && *slab) {
    right_of_way_.give_way();
    (*slab)->register_with_driver();
  }
  return slab;
}

Result<std::unique_ptr<Slab>> SlabMaker::take() {
  const bool alone = threads_.empty() || !threads_.front().started();
  if (alone) {
    const Bytes size = claim_size();
    if (size.value == 0) return std::unique_ptr<Slab>();
    return Slab::make(source_, size);
  }
  std::unique_lock lock(mutex_);
  delivered_.wait(lock, [this] { return !ready_.empty() || error_ || to_deliver_ == 0; });
  if (error_) return fail(*error_);
  if (ready_.empty()) return std::unique_ptr<Slab>();
  auto slab = std::move(ready_.front());
  ready_.pop_front();
  return slab;
}

}  // namespace lowtide
