// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/json_writer.hpp"
#include "shim/backend_choice.hpp"

namespace lowtide {

/// Writes the field "candidates": of each what its trial found, what it keeps of the contract, and how fast it is. Of
/// several with one name those after the first that works are left out.
void write_selftest(JsonWriter& json, std::span<const Candidate> ladder, ContextId context);

}  // namespace lowtide
