// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/declared_phase.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "allocator/policy/words.hpp"
#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

const std::vector<std::string>* phases_of(const ProcessStatus& status) {
  return status.policy && status.policy->phases ? &*status.policy->phases : nullptr;
}

/// Each once, in the order of the configurations.
std::vector<std::string_view> all_phases(const std::vector<Asked>& asked) {
  std::vector<std::string_view> all;
  for (const auto& each : asked) {
    const auto* phases = phases_of(each.status);
    if (phases == nullptr) continue;
    for (const auto& phase : *phases) {
      if (std::find(all.begin(), all.end(), phase) == all.end()) all.emplace_back(phase);
    }
  }
  return all;
}

}  // namespace

bool declares(const ProcessStatus& status, std::string_view name) {
  const auto* phases = phases_of(status);
  return phases == nullptr || std::find(phases->begin(), phases->end(), name) != phases->end();
}

void check_phase(const std::vector<Asked>& asked, const std::string& name) {
  const bool is_declared =
      std::any_of(asked.begin(), asked.end(), [&](const Asked& each) { return declares(each.status, name); });
  auto known = all_phases(asked);
  if (is_declared || known.empty()) return;
  if (const auto meant = std::find(known.begin(), known.end(), nearest(name, known)); meant != known.end())
    std::rotate(known.begin(), meant, meant + 1);
  throw CommandError(ExitCode::usage, fmt::format("no process asked declares a phase \"{}\"; there are {}", name,
                                                  fmt::join(known, ", ")));
}

}  // namespace lowtide::tools
