// SPDX-License-Identifier: Apache-2.0
// Updates: how content becomes valid again, and of which version it is.
#include <cinttypes>

#include "allocator/base/log.hpp"
#include "allocator/core/coverage.hpp"
#include "allocator/core/host_move.hpp"
#include "allocator/core/transition_devices.hpp"
#include "allocator/core/transition_turn.hpp"

namespace lowtide {
namespace {

bool is_resident(const Extent& extent) { return extent.blocks > 0 && extent.resident; }

bool is_backed(const Extent& extent) { return extent.blocks > 0 && !extent.resident && extent.backup != nullptr; }

}  // namespace

Status Transitions::begin_update(const TagName& tag, std::uint64_t version) {
  const std::lock_guard turn(mutex_);
  const auto applies = table_.may_begin_update(tag, version);
  if (!applies) return fail(applies.error());
  if (!*applies) return {};
  if (admission_ != nullptr) {
    if (auto status = admission_->admit(Admission::Update::begin, tag, version); !status) return status;
  }
  table_.begin_update(tag, version, bumped_by(Admission::Update::begin, tag));
  return {};
}

Status Transitions::commit_update(const TagName& tag, std::uint64_t version, const CoreSettings& settings) {
  const std::lock_guard turn(mutex_);
  const auto applies = table_.may_commit_update(tag, version);
  if (!applies) return fail(applies.error());
  if (!*applies) return {};
  if (admission_ != nullptr) {
    if (auto status = admission_->admit(Admission::Update::commit, tag, version); !status) return status;
  }
  return finish_update(tag, version, settings, true);
}

Status Transitions::finish_update(const TagName& tag, std::uint64_t version, const CoreSettings& settings,
                                  bool may_refuse) {
  auto claim = table_.claim(tag, is_resident);
  UpdateCheck check(table_, settings, claim.extents);
  if (check.has_blank()) {
    const auto no_captures = captures_.block();
    if (!no_captures) return fail(no_captures.error());
    if (auto status = TransitionDevices(claim.extents).synchronise(); !status) return status;
    if (auto status = check.scan(); !status) return status;
    auto complaint = check.complain(tag);
    if (!complaint && may_refuse) {
      table_.forget_learnt(tag);
      (void)table_.end_update(tag, true);
      return complaint;
    }
    if (!complaint) log(LogLevel::warning, "declared valid all the same: %s", complaint.error().message());
    if (auto status = check.put_back(); !status) return status;
  }
  table_.set_valid(tag, version, bumped_by(Admission::Update::commit, tag));
  for (Extent* extent : claim.extents) extent->held_back.reset();
  return {};
}

Status Transitions::abort_update(const TagName& tag) {
  const std::lock_guard turn(mutex_);
  (void)table_.end_update(tag, false);
  return {};
}

Status Transitions::mark_valid(const TagName& tag, std::uint64_t version, const CoreSettings& settings) {
  const std::lock_guard turn(mutex_);
  const auto applies = table_.may_mark_valid(tag, version);
  if (!applies) return fail(applies.error());
  if (!*applies) return {};
  if (auto status = finish_update(tag, version, settings, false); !status) return status;
  log(LogLevel::info, "the content of %s was declared valid, of version %" PRIu64 ", without an update", tag.c_str(),
      version);
  return {};
}

Status Transitions::drop_backup(const TagName& tag, const CoreSettings& settings) {
  const std::lock_guard turn(mutex_);
  const auto applies = table_.may_drop_backup(tag);
  if (!applies) return fail(applies.error());
  if (!*applies) return {};
  auto claim = table_.claim(tag, is_backed);
  // Kernels may be reading what is parked in host memory that they reach.
  if (auto status = TransitionDevices(claim.extents).synchronise(); !status) return status;
  for (Extent* extent : claim.extents) {
    table_.note_dropped(*extent, settings_of(settings, *extent).content);
    extent->backup.reset();
    drop_host_backing(*extent);
  }
  return {};
}

std::vector<TagName> Transitions::bumped_by(Admission::Update step, const TagName& tag) {
  return admission_ == nullptr ? std::vector<TagName>() : admission_->bumped_by(step, tag);
}

}  // namespace lowtide
