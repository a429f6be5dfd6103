// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "allocator/core/admission.hpp"
#include "allocator/policy/ledger.hpp"
#include "allocator/policy/rules.hpp"

namespace lowtide {

/// "weights, lora"
std::string tags_text(const TransitionPlan& plan);

/// "" or " (and 2 more)"
std::string more_text(std::size_t count);

/// "needs 14.2 GiB and 1.00 GiB of headroom on GPU-3f, 9.12 GiB are free, others have reserved 2.00 GiB; process 12
/// (trainer) has optim there, 11.4 GiB": with the largest holding of another process.
std::string shortage_text(const RoomShortage& shortage, const Holdings& holdings);

/// What to do about a breach that this process can mend itself: ": resume weights first". "" if it cannot. `planned` is
/// what the refused transition would have moved; who is `held` cannot write an update yet.
std::string remedy_text(const Breach& breach, std::span<const TagPlan> planned, bool held);

}  // namespace lowtide
