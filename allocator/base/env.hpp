// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace lowtide {

/// The value of an environment variable; nothing if it is unset or empty. The one place that calls getenv.
/// The view is valid until the host changes its environment: copy what is kept.
std::optional<std::string_view> env(const char* name) noexcept;

/// True for 1, true, yes and on, in any case.
bool env_flag(const char* name) noexcept;

}  // namespace lowtide
