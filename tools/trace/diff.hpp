// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/trace/phase_table.hpp"

namespace lowtide::tools {

/// A phase in two profiles: what was used at most, or of one series.
struct DiffRow {
  std::string phase;
  std::optional<Bytes> before;  ///< none: there is no such phase there
  std::optional<Bytes> after;
};

struct Diff {
  std::string of;  ///< what is compared
  std::vector<DiffRow> rows;
  bool none_in_both = false;  ///< but for the last row, of the largest
};

/// The maximum over all devices, by phase. `of`: "used", or the name of a tag or another series; none: used, or if
/// nobody said that, what a log says is reserved. Throws CommandError (usage) if neither has any of it.
Diff compare(const Profile& before, const Profile& after, const Selection& selection,
             const std::optional<std::string>& of);

std::string diff_text(const Diff& diff);
/// A table as it is posted in pull requests.
std::string diff_markdown(const Diff& diff);
nlohmann::json diff_json(const Diff& diff);

}  // namespace lowtide::tools
