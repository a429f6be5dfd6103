// SPDX-License-Identifier: Apache-2.0
// What the policy asks of the process, and the phases that it plans.
#include <algorithm>

#include "allocator/base/json_writer.hpp"
#include "allocator/runtime.hpp"

namespace lowtide {
namespace {

TagState state_of(const RegionInfo& region) {
  if (region.parked.value > 0) return region.backup.value > 0 ? TagState::paused_backed : TagState::paused_discarded;
  switch (region.freshness) {
    case Freshness::valid: return TagState::active;
    case Freshness::stale: return TagState::stale;
    case Freshness::syncing: return TagState::syncing;
  }
  return TagState::active;
}

/// The worse of two: not there, then not written.
TagState worse(TagState a, TagState b) {
  const auto badness = [](TagState state) {
    switch (state) {
      case TagState::active: return 0;
      case TagState::stale: return 1;
      case TagState::syncing: return 2;
      case TagState::paused_backed: return 3;
      case TagState::paused_discarded: return 4;
    }
    return 0;
  };
  return badness(a) < badness(b) ? b : a;
}

}  // namespace

Holdings Runtime::own_holdings() {
  Holdings holdings;
  for (const auto& region : blocks_.regions()) {
    if (region.blocks == 0 && region.slack.value == 0) continue;
    const auto key = key_of(region.device);
    auto found = std::find_if(holdings.begin(), holdings.end(),
                              [&](const auto& each) { return each.tag == region.label.tag && each.device == key; });
    if (found == holdings.end()) {
      Holding fresh;
      fresh.own = true;
      fresh.tag = region.label.tag;
      fresh.device = key;
      fresh.state = state_of(region);
      if (const auto updates = blocks_.updates(fresh.tag)) fresh.version = updates->version;
      found = holdings.insert(found, fresh);
    }
    found->state = worse(found->state, state_of(region));
    found->bytes += region.on_device + region.slack;
  }
  return holdings;
}

std::string Runtime::key_of(DeviceId device) {
  if (device_keys_ == nullptr) return "";
  const std::lock_guard lock(keys_mutex_);
  const auto [entry, added] = keys_.try_emplace(device);
  if (!added) return entry->second;
  auto key = device_keys_->key_of(device);
  // Partitions that a driver gives one address must not share one table.
  const bool taken = std::any_of(keys_.begin(), keys_.end(), [&](const auto& each) { return each.second == key; });
  if (!taken) entry->second = std::move(key);
  return entry->second;
}

Bytes Runtime::free_memory(DeviceId device) {
  Backend* backend = nullptr;
  for (Backend* each : backends()) {
    if (each->device() == device) backend = each;
  }
  if (backend == nullptr) return {};
  const auto info = backend->memory_info();
  return info ? info->free : Bytes{};
}

Status Runtime::enter_phase(const TagName& name, PhasePart part, bool hold) {
  policy_.set_phase(name);
  if (observer_ != nullptr) observer_->phase_entered(name, part == PhasePart::first_pauses);
  const auto steps = policy_.phase_steps(name);
  if (!steps) return {};
  for (const auto& step : *steps) {
    if (!blocks_.knows(step.tag)) continue;
    if (part == PhasePart::first_pauses && step.verb != StepVerb::pause) return {};
    if (auto status = carry_out(step, hold); !status) {
      return fail(Error::format(status.error().code(), "phase %s: %s", name.c_str(), status.error().message()));
    }
  }
  return {};
}

Status Runtime::carry_out(const Policy::OwnStep& step, bool hold) {
  if (step.verb == StepVerb::pause) {
    const auto report = pause(step.tag, hold, std::nullopt, {}, {});
    return report ? Status() : fail(report.error());
  }
  if (step.verb == StepVerb::resume) {
    const auto report = resume(step.tag, {});
    return report ? Status() : fail(report.error());
  }
  for (const auto& each : own_holdings()) {
    if (!(each.tag == step.tag) || !is_unwritten(each.state)) continue;
    auto text = std::string(step.tag.view()) + " is " + to_text(each.state) + " (version " +
                std::to_string(each.version) +
                "): the phase goes on when its update is committed and the phase is entered again";
    if (const auto waiting = end_hold_for_update(); waiting > 0)
      text += "; " + std::to_string(waiting) +
              " thread(s) of the process are held in the middle of work that may need what is still parked, so that it "
              "stays held: let it finish its work before it is paused";
    return fail(Code::busy, text);
  }
  return {};
}

void Runtime::let_go_if_unwritten(const std::optional<TagName>& tag) noexcept {
  if (policy_.mode() != PolicyMode::enforce) return;
  try {
    const auto holdings = own_holdings();
    const bool unwritten = std::any_of(holdings.begin(), holdings.end(), [&](const Holding& each) {
      return (!tag || each.tag == *tag) && is_unwritten(each.state);
    });
    if (unwritten) end_hold_for_update();
  } catch (const std::bad_alloc&) {
  }
}

std::size_t Runtime::end_hold_for_update() noexcept {
  const std::unique_lock no_other_hold(hold_mutex_, std::try_to_lock);
  if (!no_other_hold) return 0;  // a new hold is coming, which nobody is to lift
  const std::lock_guard lock(held_mutex_);
  const auto waiting = gate_.waiting();
  if (waiting > 0) return waiting;
  held_ = {};
  gate_.end_hold();
  return 0;
}

std::string Runtime::why_json(const TagName& tag) {
  JsonWriter json;
  json.begin_object().field("tag", tag.view()).key("in_the_way").begin_array();
  for (const auto& line : policy_.why(tag)) json.value(line);
  return json.end_array().end_object().take();
}

}  // namespace lowtide
