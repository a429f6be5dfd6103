// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/origins.hpp"

#include <algorithm>

namespace lowtide {

const char* to_text(TagSource source) noexcept {
  switch (source) {
    case TagSource::scope: return "scope";
    case TagSource::rule: return "rule";
    case TagSource::default_tag: return "default";
  }
  return "";
}

OriginId Origins::id_of(Origin origin) {
  const std::lock_guard lock(mutex_);
  if (const auto known = ids_.find(origin); known != ids_.end()) return known->second;
  if (origin.caller != Caller{}) {
    if (with_caller_ == most_with_caller)
      origin.caller = {};
    else
      ++with_caller_;
  }
  const auto next = static_cast<OriginId>(ids_.size() + 1);
  return ids_.emplace(std::move(origin), next).first->second;
}

std::map<OriginId, Origin> Origins::all() const {
  const std::lock_guard lock(mutex_);
  std::map<OriginId, Origin> all;
  for (const auto& [origin, id] : ids_) all.emplace(id, origin);
  return all;
}

void Origins::note_untagged(const Caller& caller, Bytes size) {
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(untagged_.begin(), untagged_.end(), [&](const Untagged& e) { return e.caller == caller; });
  if (found == untagged_.end() && untagged_.size() < most_untagged) {
    found = untagged_.insert(found, Untagged{caller});
  } else if (found == untagged_.end()) {
    found = std::min_element(untagged_.begin(), untagged_.end(),
                             [](const Untagged& a, const Untagged& b) { return a.asked < b.asked; });
    Untagged newcomer{caller};
    left_out_.allocations += found->allocations;
    left_out_.asked += found->asked;
    *found = std::move(newcomer);
  }
  ++found->allocations;
  found->asked += size;
}

std::vector<Untagged> Origins::untagged() const {
  const std::lock_guard lock(mutex_);
  auto all = untagged_;
  std::sort(all.begin(), all.end(), [](const Untagged& a, const Untagged& b) { return a.asked > b.asked; });
  if (left_out_.allocations > 0) all.push_back(left_out_);
  return all;
}

}  // namespace lowtide
