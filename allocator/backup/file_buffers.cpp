// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/file_buffers.hpp"

#include <utility>

#include "allocator/base/log.hpp"

namespace lowtide {

void FileBuffers::set_in_use(bool used) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ = used;
}

Status FileBuffers::make(Backend& backend) {
  if (slab_) return {};
  auto reservation = budget_.reserve(size * 2);
  if (!reservation) return fail(reservation.error());
  auto slab = Slab::make({backend, budget_, *reservation}, size * 2);
  if (!slab) return fail(slab.error());
  (*slab)->register_with_driver();
  if (!(*slab)->registered() && !std::exchange(told_, true))
    log(LogLevel::warning, "the driver does not register host memory here: copies to and from files are slow");
  slab_ = std::move(*slab);
  held_ = slab_->size().value;
  return {};
}

Status FileBuffers::wait() {
  if (copying_ == nullptr) return {};
  if (auto status = copying_->limit_copies({}); !status) return status;
  copying_ = nullptr;
  return {};
}

unsigned char* FileBuffers::memory(std::size_t index) const noexcept {
  return reinterpret_cast<unsigned char*>(slab_->slots.range().start.value) + index * size.value;
}

void FileBuffers::release() noexcept {
  const std::lock_guard lock(mutex_);
  if (in_use_ || !slab_ || !wait() || !slab_->unregister()) return;
  slab_.reset();
  held_ = 0;
}

}  // namespace lowtide
