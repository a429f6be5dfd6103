// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/report.hpp"

#include <fmt/format.h>

#include "allocator/base/utf8.hpp"
#include "tools/view/counted.hpp"
#include "tools/view/table.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_tags = 6;
constexpr std::size_t most_of_a_title = 24;
constexpr std::size_t most_of_a_phase = 40;
constexpr std::size_t most_of_a_place = 100;
constexpr std::size_t most_sites_shown = 10;

/// Both ends of a long name: what tells names apart is as often the last word as the first.
std::string shortened(const std::string& text, std::size_t most) {
  auto safe = printable(text, text.size());
  if (safe.size() <= most) return safe;
  const auto half = (most - 3) / 2;
  const auto tail = utf8_prefix(safe, safe.size() - half).size();
  return std::string(utf8_prefix(safe, most - 3 - half)) + "..." + safe.substr(tail);
}

/// The columns that are shown: the largest tags, and all else.
std::vector<std::size_t> shown_columns(const PhaseTable& table) {
  std::vector<std::size_t> columns;
  std::size_t tags = 0;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].kind != Series::Kind::tag || ++tags <= most_tags) columns.push_back(i);
  }
  return columns;
}

std::string amount(Bytes bytes) { return bytes.value == 0 ? "-" : to_text(bytes); }
std::string duration(double seconds) { return seconds == 0 ? "-" : fmt::format("{:.2f} s", seconds); }

std::string table_text(const PhaseTable& table) {
  const auto columns = shown_columns(table);
  std::vector<std::string> titles{"PHASE", ">RUNS", ">TIME/RUN"};
  for (const auto column : columns) titles.push_back('>' + shortened(title_of(table.columns[column]), most_of_a_title));
  for (const auto* title : {">USED", ">BACKUPS", ">WAITED"}) titles.emplace_back(title);
  Table text(titles);
  for (const auto& row : table.rows) {
    std::vector<std::string> cells{shortened(row.name, most_of_a_phase), std::to_string(row.runs),
                                   duration(row.seconds)};
    for (const auto column : columns) cells.push_back(amount(row.peaks[column]));
    cells.push_back(amount(row.used));
    cells.push_back(amount(row.backups));
    cells.push_back(duration(row.waited));
    text.add(std::move(cells));
  }
  const auto tags = std::count_if(table.columns.begin(), table.columns.end(),
                                  [](const Series& series) { return series.kind == Series::Kind::tag; });
  auto result = table.title + (table.total.value == 0 ? "" : ", " + to_text(table.total)) + '\n' + text.text();
  if (tags > static_cast<std::ptrdiff_t>(most_tags))
    result += fmt::format("({} tags; the {} largest are shown, --json has all)\n", tags, most_tags);
  return result;
}

std::string sites_text(const ProcessProfile& process, const char* whole_run) {
  if (process.sites.empty()) return "";
  Table table({">PEAK", ">CALLS", "TAG", "ALLOCATED BY"});
  for (std::size_t i = 0; i < std::min(process.sites.size(), most_sites_shown); ++i) {
    const auto& site = process.sites[i];
    table.add({to_text(site.peak), std::to_string(site.allocations), site.tag.empty() ? "-" : shortened(site.tag, 24),
               shortened(site.place, most_of_a_place)});
  }
  return fmt::format("\nprocess {}{}: who allocated most\n{}", process.pid, whole_run, table.text());
}

std::string counts_text(const ProcessProfile& process, const char* whole_run) {
  if (process.pauses + process.resumes + process.refusals + process.out_of_memory == 0) return "";
  return fmt::format("\nprocess {}{}: {}, {}, {}, {} out of memory\n", process.pid, whole_run,
                     counted(process.pauses, "pause"), counted(process.resumes, "resume"),
                     counted(process.refusals, "refusal"), counted(process.out_of_memory, "time"));
}

Json row_json(const PhaseTable& table, const PhaseRow& row) {
  auto series = Json::array();
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    series.push_back({{"name", title_of(table.columns[i])}, {"bytes", row.peaks[i].value}});
  }
  return {{"phase", row.name},         {"runs", row.runs},
          {"seconds", row.seconds},    {"waited_seconds", row.waited},
          {"used", row.used.value},    {"backups", row.backups.value},
          {"peaks", std::move(series)}};
}

Json process_json(const ProcessProfile& process) {
  auto sites = Json::array();
  for (const auto& site : process.sites) {
    sites.push_back(
        {{"by", site.place}, {"tag", site.tag}, {"allocations", site.allocations}, {"peak", site.peak.value}});
  }
  return {{"pid", process.pid},           {"host", process.host},
          {"command", process.name},      {"phases_declared", process.declared},
          {"pauses", process.pauses},     {"resumes", process.resumes},
          {"refusals", process.refusals}, {"out_of_memory", process.out_of_memory},
          {"sites", std::move(sites)}};
}

}  // namespace

std::string report_text(const Profile& profile, const Selection& selection) {
  std::string text;
  for (const auto& table : phase_tables(profile, selection)) {
    if (!text.empty()) text += '\n';
    text += table.rows.empty() ? table.title + "\nno phase of these steps\n" : table_text(table);
  }
  const auto* whole_run = selection.all_steps() ? "" : ", all steps";
  for (const auto& process : profile.processes)
    text += counts_text(process, whole_run) + sites_text(process, whole_run);
  return text.empty() ? "no memory of a device was allocated\n" : text;
}

Json report_json(const Profile& profile, const Selection& selection) {
  auto tables = Json::array();
  for (const auto& table : phase_tables(profile, selection)) {
    auto phases = Json::array();
    for (const auto& row : table.rows) phases.push_back(row_json(table, row));
    tables.push_back({{"title", table.title}, {"total", table.total.value}, {"phases", std::move(phases)}});
  }
  auto processes = Json::array();
  for (const auto& process : profile.processes) processes.push_back(process_json(process));
  return {{"ok", true}, {"tables", std::move(tables)}, {"processes", std::move(processes)}, {"notes", profile.notes}};
}

}  // namespace lowtide::tools
