// SPDX-License-Identifier: Apache-2.0
// What the doors tell of memory that is never ours.
#include "shim/doors.hpp"

namespace lowtide::recording_doors {
namespace {

/// What the doors of `vendor` are recorded by; null if they are not.
template <lowtide_vendor vendor>
Observation* observation() noexcept {
  Runtime* runtime = process().start(vendor);
  if (runtime == nullptr || process().observation() == nullptr) return nullptr;
  if constexpr (vendor == LOWTIDE_HIP) hip_doors::note_device(*runtime);
  return process().observation();
}

}  // namespace

template <lowtide_vendor vendor>
void record(const lowtide_record* record) noexcept {
  const Uncancelled uncancelled;
  if (Observation* known = observation<vendor>()) known->passed(*record);
}

template <lowtide_vendor vendor>
int record_release(lowtide_record* record) noexcept {
  const Uncancelled uncancelled;
  Observation* known = observation<vendor>();
  return known != nullptr && known->releasing(*record) ? 1 : 0;
}

template void record<LOWTIDE_CUDA>(const lowtide_record*) noexcept;
template void record<LOWTIDE_HIP>(const lowtide_record*) noexcept;
template int record_release<LOWTIDE_CUDA>(lowtide_record*) noexcept;
template int record_release<LOWTIDE_HIP>(lowtide_record*) noexcept;

}  // namespace lowtide::recording_doors
