// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/phase_table.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <unordered_map>

#include "allocator/trace/event.hpp"
#include "tools/exit_codes.hpp"
#include "tools/view/counted.hpp"

namespace lowtide::tools {
namespace {

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::size_t place_of(std::vector<Series>& columns, const Series& series) {
  const auto found = std::find(columns.begin(), columns.end(), series);
  if (found != columns.end()) return static_cast<std::size_t>(found - columns.begin());
  columns.push_back(series);
  return columns.size() - 1;
}

/// Rows by their names: a program may give each step its own.
using RowPlaces = std::unordered_map<std::string, std::size_t>;

PhaseRow& row_of(PhaseTable& table, RowPlaces& rows, const std::string& name) {
  const auto [found, is_new] = rows.try_emplace(name, table.rows.size());
  if (is_new) table.rows.emplace_back().name = name;
  return table.rows[found->second];
}

void add(PhaseTable& table, RowPlaces& rows, const DeviceProfile& device, const Selection& selection) {
  std::vector<std::size_t> places;
  for (const auto& series : device.series) places.push_back(place_of(table.columns, series));
  table.total = std::max(table.total, device.total);
  for (const auto& run : device.runs) {
    if (!counts(selection, run)) continue;
    auto& row = row_of(table, rows, run.name);
    row.peaks.resize(table.columns.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto& peak = row.peaks[places[i]];
      const bool least = device.series[i].kind == Series::Kind::available && peak.value > 0;
      peak = least ? std::min(peak, run.peak(i)) : std::max(peak, run.peak(i));
    }
    row.used = std::max(row.used, run.used);
    row.backups = std::max(row.backups, run.backups);
    row.seconds += (seconds_between(run.start, run.end) - row.seconds) / static_cast<double>(++row.runs);
    row.waited += static_cast<double>(run.waited) / 1e9;
  }
  for (auto& row : table.rows) row.peaks.resize(table.columns.size());
}

Bytes peak_of(const PhaseTable& table, std::size_t column) {
  Bytes peak;
  for (const auto& row : table.rows) peak = std::max(peak, row.peaks[column]);
  return peak;
}

/// Tags first, the largest first; what is 0 everywhere is no column.
void arrange(PhaseTable& table) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (peak_of(table, i).value > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto kind_a = table.columns[a].kind;
    const auto kind_b = table.columns[b].kind;
    return kind_a != kind_b ? kind_a < kind_b : peak_of(table, a) > peak_of(table, b);
  });
  const auto picked = [&](const auto& list) {
    auto result = list;
    result.clear();
    for (const auto i : order) result.push_back(list[i]);
    return result;
  };
  for (auto& row : table.rows) row.peaks = picked(row.peaks);
  table.columns = picked(table.columns);
}

}  // namespace

Selection parse_steps(const std::string& text) {
  const std::string_view view = text;
  const auto dash = view.find('-');
  const auto first = whole_number(view.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : whole_number(view.substr(dash + 1));
  if (!first || !last || *first > *last) {
    throw CommandError(ExitCode::usage, fmt::format("\"{}\" is no range of steps: one number, or two as in 2-4", text));
  }
  return {*first, *last, false};
}

void require_steps(const Profile& profile, const Selection& selection) {
  std::uint64_t last = 0;
  for (const auto& process : profile.processes) {
    for (const auto& device : process.devices) {
      for (const auto& run : device.runs) {
        if (counts(selection, run)) return;
        last = std::max(last, run.step);
      }
    }
  }
  if (last == 0) return;
  throw CommandError(ExitCode::usage, fmt::format("there {}, and none of those that are asked for",
                                                  last == 1 ? "is one step" : fmt::format("are steps 1 to {}", last)));
}

std::vector<PhaseTable> phase_tables(const Profile& profile, const Selection& selection) {
  std::vector<PhaseTable> tables;
  if (selection.over_devices) {
    std::size_t devices = 0;
    for (const auto& process : profile.processes) devices += process.devices.size();
    tables.push_back(
        {fmt::format("maximum over {} of {}", counted(devices, "device"), counted(profile.processes.size(), "process")),
         {},
         {},
         {}});
  }
  RowPlaces rows;
  for (const auto& process : profile.processes) {
    for (const auto& device : process.devices) {
      if (!selection.over_devices) {
        tables.push_back({title_of(process, device), {}, {}, {}});
        rows.clear();
      }
      add(tables.back(), rows, device, selection);
    }
  }
  for (auto& table : tables) arrange(table);
  return tables;
}

std::string title_of(const Series& series) {
  const bool is_plain = series.kind != Series::Kind::unmanaged || series.name == trace::to_text(trace::Memory::slack);
  return is_plain ? series.name : "unmanaged " + series.name;
}

}  // namespace lowtide::tools
