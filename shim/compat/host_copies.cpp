// SPDX-License-Identifier: Apache-2.0
#include "shim/compat/host_copies.hpp"

namespace lowtide::compat {

const std::byte* HostCopies::at(Runtime& runtime, AddressRange range, Runtime::Copies copies) {
  const auto bytes = runtime.view_backup(range.start, copies);
  if (!bytes) return nullptr;
  if (bytes->size() >= range.size.value) return bytes->data();
  std::vector<std::byte> copy(range.size.value);
  if (auto status = runtime.read_backup(range, copy.data(), copies); !status) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto kept = copies_.find(range.start);
  // An earlier pointer stays good.
  if (kept != copies_.end() && kept->second.size() >= copy.size()) return kept->second.data();
  return copies_.insert_or_assign(range.start, std::move(copy)).first->second.data();
}

void HostCopies::drop() noexcept {
  const std::lock_guard lock(mutex_);
  copies_.clear();
}

}  // namespace lowtide::compat
