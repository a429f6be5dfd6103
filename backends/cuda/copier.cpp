// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/copier.hpp"

#include <utility>

namespace lowtide::cuda {

Result<Copier> Copier::make(const Driver& driver) noexcept {
  Copier copier(driver);
  for (CUstream& stream : copier.streams_) {
    const auto result = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) continue;
    copier.destroy();
    return fail(driver.error(result, "cuStreamCreate"));
  }
  for (CUevent& event : copier.events_) {
    // Who waits for a copy leaves the processor to those who pin memory for the next.
    const auto result = driver.cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) continue;
    copier.destroy();
    return fail(driver.error(result, "cuEventCreate"));
  }
  return copier;
}

void Copier::destroy() noexcept {
  for (CUevent& event : events_) {
    if (event != nullptr) (void)driver_->cuEventDestroy_v2(std::exchange(event, nullptr));
  }
  for (CUstream& stream : streams_) {
    if (stream != nullptr) (void)driver_->cuStreamDestroy_v2(std::exchange(stream, nullptr));
  }
}

Status Copier::mark() {
  if (marks_ == mark_count) {
    if (auto status = wait_for_oldest(); !status) return status;
  }
  const std::size_t next = (oldest_ + marks_) % mark_count;
  if (auto status = driver_->status(driver_->cuEventRecord(events_[next], streams_[current_]), "cuEventRecord");
      !status) {
    return status;
  }
  marked_[next] = unmarked_;
  in_flight_ += unmarked_;
  unmarked_ = {};
  ++marks_;
  current_ = (current_ + 1) % stream_count;
  return {};
}

Status Copier::wait_for_oldest() {
  if (auto status = driver_->status(driver_->cuEventSynchronize(events_[oldest_]), "cuEventSynchronize"); !status) {
    return status;
  }
  in_flight_ -= marked_[oldest_];
  oldest_ = (oldest_ + 1) % mark_count;
  --marks_;
  return {};
}

Status Copier::limit(Bytes bytes) {
  if (unmarked_ > bytes) {
    if (auto status = mark(); !status) return status;
  }
  while (marks_ > 0 && in_flight_ + unmarked_ > bytes) {
    if (auto status = wait_for_oldest(); !status) return status;
  }
  return {};
}

Status Copier::finish() {
  for (CUstream stream : streams_) {
    if (auto status = driver_->status(driver_->cuStreamSynchronize(stream), "cuStreamSynchronize"); !status)
      return status;
  }
  marks_ = 0;
  in_flight_ = {};
  unmarked_ = {};
  return {};
}

}  // namespace lowtide::cuda
