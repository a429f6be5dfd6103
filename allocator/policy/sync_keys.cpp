// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/sync_keys.hpp"

#include <array>

#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 3> mode_words{"off", "observe", "enforce"};
constexpr std::array<std::string_view, 2> peak_words{"host", "device"};
constexpr std::array<std::string_view, 3> refill_words{"none", "sync", "reload"};

bool set_mode(Configuration& configuration, const TagName&, std::string_view value) {
  for (const auto mode : {PolicyMode::off, PolicyMode::observe, PolicyMode::enforce}) {
    if (value != to_text(mode)) continue;
    configuration.sync.mode = mode;
    configuration.core.coverage = mode == PolicyMode::enforce ? Coverage::learn : Coverage::off;
    return true;
  }
  return false;
}

bool set_headroom(Configuration& configuration, const TagName&, std::string_view value) {
  const auto headroom = parse_size(value);
  if (headroom) configuration.sync.headroom = *headroom;
  return headroom.has_value();
}

bool set_peak_on(Configuration& configuration, const TagName&, std::string_view value) {
  if (value != "host" && value != "device") return false;
  configuration.sync.peak_on = value == "host" ? PeakOn::host : PeakOn::device;
  return true;
}

bool set_role(Configuration& configuration, const TagName& tag, std::string_view value) {
  const auto role = TagName::parse(value);
  if (role) configuration.sync.tags[tag].role = role;
  return role.has_value();
}

bool set_refill(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto refill : {Refill::none, Refill::sync, Refill::reload}) {
    if (value != to_text(refill)) continue;
    configuration.sync.tags[tag].refill = refill;
    return true;
  }
  return false;
}

constexpr std::array table{
    Key{"mode", "off, observe or enforce", "`observe`",
        "What becomes of a transition that breaks a rule: nobody looks, it is counted and shown, or it is refused or "
        "waits.",
        mode_words, set_mode, nullptr},
    Key{"tag.NAME.role",
        "a name: 1 to 63 of A-Z a-z 0-9 _ -",
        "none",
        "The role (`LOWTIDE_ROLE`) of the processes whose tag it is, where a rule or a phase names it without a role.",
        {},
        set_role,
        nullptr},
    Key{"tag.NAME.refill", "none, sync or reload", "`none`",
        "How content comes back that a pause dropped: not at all, by an update, or by a reload of the model.",
        refill_words, set_refill, nullptr},
    Key{"device.headroom",
        "a size such as 64GiB or 512MiB, or 0",
        "`0`",
        "What must stay free on a device after a resume, in mode enforce.",
        {},
        set_headroom,
        nullptr},
    Key{"device.peak_on", "host or device", "`host`",
        "Which side holds both copies while a phase hands memory over: with `host`, all is paused before anything is "
        "resumed; with `device`, what is copied to the host is paused after the update.",
        peak_words, set_peak_on, nullptr},
};

}  // namespace

const char* to_text(PolicyMode mode) noexcept {
  switch (mode) {
    case PolicyMode::off: return "off";
    case PolicyMode::observe: return "observe";
    case PolicyMode::enforce: return "enforce";
  }
  return "?";
}

std::span<const Key> sync_keys() noexcept { return table; }

}  // namespace lowtide
