// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/portable/trial.hpp"

namespace lowtide {

/// One way to serve a device. Several of one name differ in what they ask of the driver.
struct Candidate {
  std::string name;   ///< "vmm", "vmm+cycle", "recreate", "off"
  std::string offer;  ///< one line for people: what it gives
  /// Makes it, with its reason. Fails where the driver lacks what it is made of.
  std::function<Result<std::unique_ptr<Backend>>(std::string reason)> make;
  Bytes trial = portable::usual_trial;  ///< how much it is tried with: more than the largest handle that it would make
  Bytes least{};  ///< a trial of less, for which a nearly full device had room, says nothing of it
};

/// The candidates for a device, best first. The last one is "off", which needs no trial.
using Ladder = std::vector<Candidate>;

/// The backend of a device: the first of the ladder that its trial accepts. Its reason says what it gives, and why each
/// higher one was rejected. `forced` is what LOWTIDE_BACKEND says, "" nothing: only candidates of that name are made,
/// and what their trial complains of is said in the reason, unless a call fails.
///
/// A trial without a result does not cost a device its rung: what could not be seen because of neighbours is taken for
/// good, with a reason that says so, since nearly all drivers are; and a device without a free granule answers
/// Code::device_memory, as it would have to the block that is to be placed, so that the next one asks again.
/// Code::config if what is forced cannot be had.
Result<std::unique_ptr<Backend>> choose_backend(std::span<const Candidate> ladder, std::string_view forced,
                                                ContextId context);

}  // namespace lowtide
