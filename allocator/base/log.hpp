// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide {

enum class LogLevel : int { off, error, warning, info, debug };

/// Sets what is printed; the default is `warning`. Thread-safe.
void set_log_level(LogLevel level) noexcept;

/// One line on stderr, "lowtide[PID]: ...", by one write(2): no stdio, no allocation, safe in a hook. A process prints
/// at most 16 errors and warnings, then one line that says the rest are left out: a broken host is not flooded.
[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...) noexcept;

}  // namespace lowtide
