// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <array>
#include <optional>
#include <string>

namespace lowtide {

/// A set of processors. Eight times what cpu_set_t has room for: the calls fail if the kernel knows more than fit.
using Processors = std::array<cpu_set_t, 8>;

/// Those that the calling thread may use; nothing if the kernel does not say.
std::optional<Processors> processors_of_thread() noexcept;

/// How many threads can run at once here: the processors that the calling thread may use (threads that it starts
/// inherit them), and no more than the quota of the control group and of each ancestor, rounded down: a quota that is
/// overdrawn stops all threads of the group, the host's too, until the next period. At least 1. `root` is "" but for
/// tests.
unsigned usable_processors(const std::string& root) noexcept;

}  // namespace lowtide
