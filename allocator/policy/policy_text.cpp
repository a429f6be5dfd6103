// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/policy_text.hpp"

#include <algorithm>

namespace lowtide {

std::string tags_text(const TransitionPlan& plan) {
  std::string text;
  const TagName* last = nullptr;
  for (const auto& row : plan.tags) {
    if (last != nullptr && *last == row.tag) continue;
    text.append(text.empty() ? "" : ", ").append(row.tag.view());
    last = &row.tag;
  }
  return text;
}

std::string more_text(std::size_t count) { return count == 0 ? "" : " (and " + std::to_string(count) + " more)"; }

std::string shortage_text(const RoomShortage& shortage, const Holdings& holdings) {
  const auto& room = shortage.room;
  auto text = "needs " + to_text(room.wanted);
  if (shortage.headroom.value > 0) text += " and " + to_text(shortage.headroom) + " of headroom";
  text += " on " + (shortage.device.empty() ? "the device" : shortage.device) + ", " + to_text(room.free) + " are free";
  if (room.reserved.value > 0) text += ", others have reserved " + to_text(room.reserved);
  if (room.before.value > 0) text += ", who came before want " + to_text(room.before);
  const Holding* largest = nullptr;
  for (const auto& each : holdings) {
    if (each.own || each.device != shortage.device || each.bytes.value == 0) continue;
    if (largest == nullptr || each.bytes > largest->bytes) largest = &each;
  }
  if (largest == nullptr) return text;
  text += "; process " + std::to_string(largest->pid);
  if (largest->role) text += " (" + std::string(largest->role->view()) + ')';
  return text + " has " + std::string(largest->tag.view()) + " there, " + to_text(largest->bytes);
}

std::string remedy_text(const Breach& breach, std::span<const TagPlan> planned, bool held) {
  if (!breach.in_the_way || !breach.in_the_way->own) return "";
  const std::string needed(breach.in_the_way->tag.view());
  if (is_paused(breach.in_the_way->state)) return ": resume " + needed + " first";
  if (!is_unwritten(breach.in_the_way->state)) return "";
  // A process that was held while it did nothing is let go once content comes back stale.
  const auto* stuck = held ? "; held in the middle of its work, it cannot: let it finish before a pause" : "";
  const bool comes_along = std::any_of(planned.begin(), planned.end(),
                                       [&](const TagPlan& each) { return each.tag == breach.in_the_way->tag; });
  if (!comes_along) return ": commit an update of " + needed + " first" + stuck;
  return ": resume " + needed + " alone (--tag " + needed + "), update it, then resume " +
         std::string(breach.rule->tag.tag.view());
}

}  // namespace lowtide
