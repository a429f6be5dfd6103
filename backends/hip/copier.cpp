// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/copier.hpp"

#include <utility>

namespace lowtide::hip {

Result<Copier> Copier::make(const Runtime& runtime) noexcept {
  Copier copier(runtime);
  for (hipStream_t& stream : copier.streams_) {
    const auto result = runtime.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
    if (result == hipSuccess) continue;
    copier.destroy();
    return fail(runtime.error(result, "hipStreamCreateWithFlags"));
  }
  for (hipEvent_t& event : copier.events_) {
    // Who waits for a copy leaves the processor to those who pin memory for the next.
    const auto result = runtime.hipEventCreateWithFlags(&event, hipEventBlockingSync | hipEventDisableTiming);
    if (result == hipSuccess) continue;
    copier.destroy();
    return fail(runtime.error(result, "hipEventCreateWithFlags"));
  }
  return copier;
}

void Copier::destroy() noexcept {
  for (hipEvent_t& event : events_) {
    if (event != nullptr) (void)runtime_->hipEventDestroy(std::exchange(event, nullptr));
  }
  for (hipStream_t& stream : streams_) {
    if (stream != nullptr) (void)runtime_->hipStreamDestroy(std::exchange(stream, nullptr));
  }
}

Status Copier::mark() {
  if (marks_ == mark_count) {
    if (auto status = wait_for_oldest(); !status) return status;
  }
  const std::size_t next = (oldest_ + marks_) % mark_count;
  if (auto status = runtime_->status(runtime_->hipEventRecord(events_[next], streams_[current_]), "hipEventRecord");
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
  if (auto status = runtime_->status(runtime_->hipEventSynchronize(events_[oldest_]), "hipEventSynchronize"); !status) {
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
  for (hipStream_t stream : streams_) {
    if (auto status = runtime_->status(runtime_->hipStreamSynchronize(stream), "hipStreamSynchronize"); !status)
      return status;
  }
  marks_ = 0;
  in_flight_ = {};
  unmarked_ = {};
  return {};
}

}  // namespace lowtide::hip
