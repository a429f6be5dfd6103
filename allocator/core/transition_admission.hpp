// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "allocator/core/admission.hpp"
#include "allocator/core/block_table.hpp"

namespace lowtide {

/// What a transition of `extents`, which are its claim, is about to do. `drops(extent)`: without its content.
template <class Drops>
TransitionPlan plan_of(TransitionPlan::Step step, const std::optional<TagName>& tag, std::span<Extent* const> extents,
                       Drops drops) {
  TransitionPlan plan{step, tag, {}};
  for (const Extent* extent : extents) {
    const TagName& name = extent->region.label.tag;
    const DeviceId device = extent->region.backend.device();
    auto row = std::find_if(plan.tags.begin(), plan.tags.end(),
                            [&](const TagPlan& each) { return each.tag == name && each.device == device; });
    if (row == plan.tags.end()) row = plan.tags.insert(row, TagPlan{name, device, {}, {}});
    const bool takes = step == TransitionPlan::Step::resume;
    if (extent->holds_memory() != takes) row->memory += extent->range().size;
    if (drops(*extent)) row->discarded += extent->requested;
  }
  std::sort(plan.tags.begin(), plan.tags.end(),
            [](const TagPlan& a, const TagPlan& b) { return a.tag != b.tag ? a.tag < b.tag : a.device < b.device; });
  return plan;
}

/// One attempt's dealings with the policy. Its end tells the policy that the transition ended, whichever way: it is
/// made before what is undone on the way out.
class AdmittedTransition {
 public:
  AdmittedTransition(Admission* admission, BlockTable& table) : admission_(admission), table_(table) {}
  AdmittedTransition(const AdmittedTransition&) = delete;
  AdmittedTransition& operator=(const AdmittedTransition&) = delete;
  ~AdmittedTransition() {
    if (!admitted_) return;
    table_.measure(memory_);
    admitted_->ended(done_, memory_);
  }

  Status ask(const TransitionPlan& plan) {
    if (admission_ == nullptr) return {};
    memory_.reserve(plan.tags.size());
    for (const TagPlan& row : plan.tags) memory_.push_back({row.tag, row.device, {}});
    auto answer = admission_->admit(plan);
    if (!answer) return fail(answer.error());
    admitted_ = std::move(*answer);
    for (const TagPlan& row : plan.tags) {
      const bool again = &row != plan.tags.data() && (&row - 1)->tag == row.tag;  // on another device
      if (again) continue;
      const auto bumped = admission_->bumped_by(plan.step, row.tag);
      bumped_.insert(bumped_.end(), bumped.begin(), bumped.end());
    }
    table_.make_versions(bumped_);  // what is done then needs no memory
    return {};
  }
  void taken(const Extent& extent) noexcept {
    if (admitted_) admitted_->taken(extent.region.backend.device(), extent.range().size);
  }
  void done() noexcept {
    done_ = true;
    table_.bump(bumped_);
  }

 private:
  Admission* const admission_;
  BlockTable& table_;
  std::unique_ptr<Admitted> admitted_;
  std::vector<TagMemory> memory_;
  std::vector<TagName> bumped_;
  bool done_ = false;
};

}  // namespace lowtide
