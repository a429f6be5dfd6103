// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// "20s", "500ms", "2m", "0". Nothing for anything else, and for more than a year.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) noexcept;

/// "64GiB", "512MiB", "0": a whole number with one of B, KiB, MiB, GiB, TiB; only 0 stands alone. Nothing for anything
/// else, and for 1 EiB and more.
std::optional<Bytes> parse_size(std::string_view text) noexcept;

/// The candidate that `text` is most likely a misspelling of; "" if none is near.
std::string_view nearest(std::string_view text, std::span<const std::string_view> candidates);

/// "; did you mean X?" with the nearest candidate, to end a message with; "" if none is near.
std::string did_you_mean(std::string_view text, std::span<const std::string_view> candidates);

/// `text` for a one-line message: control characters replaced, and cut in the middle if it is longer than `most`.
std::string shown(std::string_view text, std::size_t most);

std::string_view trimmed(std::string_view text) noexcept;

/// The parts between the separators, empty parts included.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace lowtide
