// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "allocator/core/admission.hpp"
#include "allocator/policy/ledger.hpp"

namespace lowtide {

/// "weights, lora"
std::string tags_text(const TransitionPlan& plan);

/// "" or " (and 2 more)"
std::string more_text(std::size_t count);

/// "needs 14.2 GiB and 1.00 GiB of headroom on GPU-3f, 9.12 GiB are free, others have reserved 2.00 GiB; process 12
/// (trainer) has optim there, 11.4 GiB": with the largest holding of another process.
std::string shortage_text(const RoomShortage& shortage, const Holdings& holdings);

}  // namespace lowtide
