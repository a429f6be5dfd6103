// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/diff.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "tools/exit_codes.hpp"
#include "tools/view/table.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_of_a_phase = 80;
constexpr const char* used_name = "used";

PhaseTable table_of(const Profile& profile, Selection selection) {
  selection.over_devices = true;
  return phase_tables(profile, selection).front();
}

/// Of one row: nothing if it does not have it, or 0.
std::optional<Bytes> value_of(const PhaseTable& table, const PhaseRow& row, const std::string& of) {
  if (of == used_name) return row.used.value == 0 ? std::nullopt : std::optional(row.used);
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (title_of(table.columns[i]) == of) return row.peaks[i];
  }
  return std::nullopt;
}

bool has(const PhaseTable& table, const std::string& of) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [&](const PhaseRow& row) { return value_of(table, row, of).value_or(Bytes{}).value > 0; });
}

std::string known_series(const PhaseTable& before, const PhaseTable& after) {
  std::string names = used_name;
  for (const auto* table : {&before, &after}) {
    for (const auto& series : table->columns) {
      const auto name = title_of(series);
      if (has(*table, name) && names.find(name) == std::string::npos) names += ", " + printable(name, most_of_a_phase);
    }
  }
  return names;
}

/// As it is shown, so that the change is the difference of what a reader sees.
double gib(Bytes bytes) { return std::round(static_cast<double>(bytes.value) / (1 << 30) * 100) / 100; }

std::string number(const std::optional<Bytes>& bytes) { return bytes ? fmt::format("{:.2f}", gib(*bytes)) : "-"; }

std::string change(const DiffRow& row) {
  return row.before && row.after ? fmt::format("{:+.2f}", gib(*row.after) - gib(*row.before) + 0.0) : "-";
}

using Names = std::unordered_set<std::string_view>;

Names names_of(const PhaseTable& table) {
  Names names;
  for (const auto& row : table.rows) names.insert(row.name);
  return names;
}

/// A log has lines before and after a phase: where the other side knows the phase itself, they are of it.
std::string_view phase_of(std::string_view name, const Names& others) {
  for (const std::string_view border : {"Before ", "After "}) {
    if (name.starts_with(border) && others.contains(name.substr(border.size()))) return name.substr(border.size());
  }
  return name;
}

/// `places` is where the phases have their rows.
void add_side(Diff& diff, std::unordered_map<std::string_view, std::size_t>& places, const PhaseTable& table,
              const Names& others, std::optional<Bytes> DiffRow::*side) {
  for (const auto& row : table.rows) {
    const auto value = value_of(table, row, diff.of);
    if (!value) continue;
    const auto phase = phase_of(row.name, others);
    const auto [place, is_new] = places.try_emplace(phase, diff.rows.size());
    if (is_new) diff.rows.push_back({std::string(phase), std::nullopt, std::nullopt});
    auto& largest = diff.rows[place->second].*side;
    largest = std::max(largest, value);
  }
}

/// In a table of Markdown a bar would end the cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : printable(text, text.size())) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void add_largest(Diff& diff) {
  DiffRow largest{"largest", std::nullopt, std::nullopt};
  for (const auto& row : diff.rows) {
    if (row.before) largest.before = std::max(largest.before.value_or(Bytes{}), *row.before);
    if (row.after) largest.after = std::max(largest.after.value_or(Bytes{}), *row.after);
  }
  diff.rows.push_back(std::move(largest));
}

}  // namespace

Diff compare(const Profile& before, const Profile& after, const Selection& selection,
             const std::optional<std::string>& of) {
  const auto a = table_of(before, selection);
  const auto b = table_of(after, selection);
  Diff diff{of.value_or(has(a, used_name) || has(b, used_name) ? used_name : "reserved"), {}};
  if (!has(a, diff.of) && !has(b, diff.of)) {
    throw CommandError(ExitCode::usage, fmt::format("neither has anything of \"{}\" in these steps; there is: {}",
                                                    diff.of, known_series(a, b)));
  }
  std::unordered_map<std::string_view, std::size_t> places;
  add_side(diff, places, a, names_of(b), &DiffRow::before);
  add_side(diff, places, b, names_of(a), &DiffRow::after);
  diff.none_in_both =
      std::none_of(diff.rows.begin(), diff.rows.end(), [](const DiffRow& row) { return row.before && row.after; });
  add_largest(diff);
  return diff;
}

std::string diff_text(const Diff& diff) {
  Table table({"PHASE", ">A", ">B", ">CHANGE"});
  for (const auto& row : diff.rows)
    table.add({printable(row.phase, most_of_a_phase), number(row.before), number(row.after), change(row)});
  return fmt::format("{}, peak in GiB\n{}", diff.of, table.text());
}

std::string diff_markdown(const Diff& diff) {
  auto text = fmt::format("| phase ({}, peak in GiB) | A | B | change |\n| --- | ---: | ---: | ---: |\n", diff.of);
  for (const auto& row : diff.rows) {
    text += fmt::format("| {} | {} | {} | {} |\n", cell(row.phase), number(row.before), number(row.after), change(row));
  }
  return text;
}

nlohmann::json diff_json(const Diff& diff) {
  auto rows = nlohmann::json::array();
  const auto bytes = [](const std::optional<Bytes>& value) {
    return value ? nlohmann::json(value->value) : nlohmann::json();
  };
  for (const auto& row : diff.rows)
    rows.push_back({{"phase", row.phase}, {"a", bytes(row.before)}, {"b", bytes(row.after)}});
  return {{"ok", true}, {"of", diff.of}, {"phases", std::move(rows)}};
}

}  // namespace lowtide::tools
