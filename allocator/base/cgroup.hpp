// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

enum class CgroupVersion : int { v1 = 1, v2 = 2 };

/// The folders of this process's control group and of its ancestors, from the group up to the top that is mounted, in
/// the hierarchy of `version` that has `controller` ("memory"). Empty if there is none. `root` stands before every path
/// that is read ("" but for tests).
std::vector<std::string> cgroup_folders(const std::string& root, CgroupVersion version, std::string_view controller);

/// What is in a small file of /proc or /sys; "" if it cannot be read.
std::string text_of_file(const std::string& path);

/// The number at the start of `text`; nothing for "max" and for what is no number.
std::optional<std::uint64_t> leading_number(std::string_view text) noexcept;

/// The number after the name at the start of a line: "inactive_file 4096", "MemAvailable:  4096 kB".
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name) noexcept;

}  // namespace lowtide
