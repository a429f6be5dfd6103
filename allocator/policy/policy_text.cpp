// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/policy_text.hpp"

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

}  // namespace lowtide
