// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Which runs count, and what they are put together to.
struct Selection {
  std::uint64_t first_step = 0;
  std::uint64_t last_step = std::numeric_limits<std::uint64_t>::max();
  bool over_devices = false;  ///< one table, the maximum over all devices of all processes

  bool all_steps() const { return first_step == 0 && last_step == std::numeric_limits<std::uint64_t>::max(); }
};

constexpr bool counts(const Selection& selection, const PhaseRun& run) {
  return selection.first_step <= run.step && run.step <= selection.last_step;
}

/// "2-4" or "3". Throws CommandError (usage).
Selection parse_steps(const std::string& text);

/// Throws CommandError (usage) if there are phases, and none is of these steps.
void require_steps(const Profile& profile, const Selection& selection);

/// A phase over its runs: the maximum of each, or what is said.
struct PhaseRow {
  std::string name;
  std::uint64_t runs = 0;
  double seconds = 0;        ///< of one run, on average
  double waited = 0;         ///< seconds, of all runs together
  std::vector<Bytes> peaks;  ///< by column; of what is available the minimum
  Bytes used;
  Bytes backups;
};

struct PhaseTable {
  std::string title;
  Bytes total;
  std::vector<Series> columns;  ///< tags first, the largest first; none is 0 in all rows
  std::vector<PhaseRow> rows;   ///< in the order in which the phases began
};

/// One for each device of each process, or one over all. A phase without a run that counts is not there.
std::vector<PhaseTable> phase_tables(const Profile& profile, const Selection& selection);

/// What the column is called.
std::string title_of(const Series& series);

}  // namespace lowtide::tools
