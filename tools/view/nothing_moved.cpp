// SPDX-License-Identifier: Apache-2.0
#include "tools/view/nothing_moved.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lowtide::tools {
namespace {

// Of what the wish is about.
struct Sums {
  Bytes resident;
  Bytes parked;
  bool off = true;  ///< every device of it is one where nothing is paused
};

bool is_off(const ProcessStatus& status, int device) {
  return std::any_of(status.devices.begin(), status.devices.end(),
                     [=](const DeviceStatus& one) { return one.device == device && one.backend == "off"; });
}

Sums sums_of(const ProcessStatus& status, const TransitionWish& wish) {
  Sums sums;
  for (const auto& tag : status.tags) {
    if (wish.tag && tag.tag != wish.tag->view()) continue;
    sums.resident += tag.resident;
    sums.parked += tag.parked;
    sums.off &= is_off(status, tag.device);
  }
  return sums;
}

std::string reason_of_pause(const ProcessStatus& before, const Sums& sums) {
  if (sums.parked.value > 0 && sums.resident.value == 0) return "everything was parked already";
  if (sums.parked.value > 0) {
    return fmt::format("{} were parked already, and {} stay on the device (tags that are kept, or shared memory)",
                       to_text(sums.parked), to_text(sums.resident));
  }
  if (sums.resident.value > 0) {
    return fmt::format("all its tagged memory, {}, stays on the device ({})", to_text(sums.resident),
                       sums.off ? "pausing is off there" : "tags that are kept, or shared memory");
  }
  if (!before.default_tag.empty() || !before.tags.empty()) return "it has no tagged memory at the moment";
  return "none of its memory is tagged: start it with `lowtide run --tag TAG`, or tag in its code what it allocates";
}

}  // namespace

bool moved_nothing(const nlohmann::json& report) {
  return report.at("blocks").get<std::uint64_t>() == 0 && report.at("bytes_parked").get<std::uint64_t>() == 0 &&
         report.at("bytes_discarded").get<std::uint64_t>() == 0;
}

NothingMoved explain_nothing_moved(const ProcessStatus& before, const TransitionWish& wish) {
  if (wish.verb == TransitionWish::Verb::resume) return {"nothing was parked", false};
  const auto sums = sums_of(before, wish);
  // The process opens its gate again where a hold finds nothing parked.
  const bool held = sums.parked.value > 0 || before.gate != "open";
  return {reason_of_pause(before, sums), wish.hold && !held};
}

}  // namespace lowtide::tools
