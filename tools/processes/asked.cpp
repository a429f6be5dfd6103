// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/asked.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

bool has_tag(const ProcessStatus& status, const TagName& tag) {
  return std::any_of(status.tags.begin(), status.tags.end(),
                     [&](const auto& known) { return known.tag == tag.view(); });
}

[[noreturn]] void throw_unknown_tag(const std::vector<Asked>& asked, const TagName& tag) {
  std::set<std::string> known;
  for (const auto& each : asked) {
    for (const auto& row : each.status.tags) known.insert(row.tag);
  }
  const auto what =
      known.empty() ? std::string("there is no tagged memory") : fmt::format("there are {}", fmt::join(known, ", "));
  throw CommandError(ExitCode::usage, fmt::format("no process asked has the tag \"{}\"; {}", tag.view(), what));
}

}  // namespace

std::vector<Asked> ask_each(const std::vector<ControlSocket>& targets) {
  std::vector<Asked> all;
  all.reserve(targets.size());
  for (const auto& target : targets) all.push_back({target, ask_status(target)});
  return all;
}

std::vector<Asked> those_with(const TagName& tag, std::vector<Asked> asked) {
  const auto none =
      std::none_of(asked.begin(), asked.end(), [&](const Asked& each) { return has_tag(each.status, tag); });
  if (none) throw_unknown_tag(asked, tag);
  std::erase_if(asked, [&](const Asked& each) { return !has_tag(each.status, tag); });
  return asked;
}

}  // namespace lowtide::tools
