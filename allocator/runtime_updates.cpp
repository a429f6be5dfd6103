// SPDX-License-Identifier: Apache-2.0
// Updates of a tag's content, asked for by the process itself.
#include "allocator/runtime.hpp"

namespace lowtide {

Status Runtime::told(Status status) {
  policy_.content_changed();
  return status;
}

Status Runtime::observed(Observer::Update step, const TagName& tag, std::uint64_t version, Status status) {
  if (observer_ != nullptr) observer_->updated(step, tag, version, status);
  return status;
}

Status Runtime::begin_update(const TagName& tag, std::uint64_t version) {
  if (auto status = check_possible(tag); !status) return status;
  return observed(Observer::Update::begin, tag, version, told(transitions_.begin_update(tag, version)));
}

Status Runtime::commit_update(const TagName& tag, std::uint64_t version) {
  if (auto status = check_possible(tag); !status) return status;
  return observed(Observer::Update::commit, tag, version, told(transitions_.commit_update(tag, version, settings())));
}

Status Runtime::abort_update(const TagName& tag) {
  if (auto status = check_possible(tag); !status) return status;
  return observed(Observer::Update::abort, tag, 0, told(transitions_.abort_update(tag)));
}

Status Runtime::mark_valid(const TagName& tag, std::uint64_t version) {
  if (auto status = check_possible(tag); !status) return status;
  return observed(Observer::Update::commit, tag, version, told(transitions_.mark_valid(tag, version, settings())));
}

Status Runtime::drop_backup(const TagName& tag) {
  if (auto status = check_possible(tag); !status) return status;
  return told(transitions_.drop_backup(tag, settings()));
}

}  // namespace lowtide
