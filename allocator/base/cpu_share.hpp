// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lowtide {

/// How many threads can run at once here: the processors that the calling thread may use (threads that it starts
/// inherit them), and no more than the quota of the control group and of each ancestor, rounded down: a quota that is
/// overdrawn stops all threads of the group, the host's too, until the next period. At least 1. `root` is "" but for
/// tests.
unsigned usable_processors(const std::string& root) noexcept;

}  // namespace lowtide
