// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/trace/phase_table.hpp"
#include "tools/trace/plot.hpp"
#include "tools/trace/plot_order.hpp"
#include "tools/view/counted.hpp"

// What page/page.S has put into the command.
extern "C" {
extern const char lowtide_page_html[];
extern const char lowtide_page_html_end[];
extern const char lowtide_page_script[];
extern const char lowtide_page_script_end[];
extern const char lowtide_page_library[];
extern const char lowtide_page_library_end[];
}

namespace lowtide::tools {
namespace {

using Json = nlohmann::json;

/// More of them are too narrow to be seen, and make the page slow.
constexpr std::size_t most_phases = 3000;

std::string_view between(const char* start, const char* end) { return {start, static_cast<std::size_t>(end - start)}; }

const char* kind_text(Series::Kind kind) {
  switch (kind) {
    case Series::Kind::unmanaged: return "unmanaged";
    case Series::Kind::others: return "others";
    case Series::Kind::unattributed: return "unattributed";
    default: return "tag";
  }
}

Json phases_json(const DeviceProfile& device, const Span& span) {
  auto phases = Json::array();
  const auto shortest = span.seconds(span.end) / 4000;
  for (const auto& run : device.runs) {
    const bool seen = device.runs.size() <= most_phases || seconds_between(run.start, run.end) > shortest;
    if (seen && phases.size() < most_phases)
      phases.push_back({{"name", run.name}, {"start", span.seconds(run.start)}, {"end", span.seconds(run.end)}});
  }
  return phases;
}

void add_table(Json& chart, const PhaseTable& table) {
  auto columns = Json::array();
  for (const auto& column : table.columns) columns.push_back(title_of(column));
  auto rows = Json::array();
  for (const auto& row : table.rows) {
    auto peaks = Json::array();
    for (const auto bytes : row.peaks) peaks.push_back(bytes.value);
    rows.push_back({{"phase", row.name},
                    {"runs", row.runs},
                    {"seconds", row.seconds},
                    {"peaks", std::move(peaks)},
                    {"used", row.used.value},
                    {"backups", row.backups.value}});
  }
  chart["columns"] = std::move(columns);
  chart["table"] = std::move(rows);
}

Json chart_json(const ProcessProfile& process, const DeviceProfile& device, const Span& span) {
  auto stack = stack_of(device);
  auto series = Json::array();
  for (const auto& each : stack.series) series.push_back({{"name", each.name}, {"kind", kind_text(each.kind)}});
  auto times = Json::array();
  auto used = Json::array();
  for (const auto& point : device.points) {
    times.push_back(span.seconds(point.time));
    used.push_back(point.used);
  }
  const auto name = device.name.empty() ? "" : fmt::format(" ({})", device.name);
  return {{"title", title_of(process, device) + name},
          {"command", process.name},
          {"total", device.total.value},
          {"series", std::move(series)},
          {"times", std::move(times)},
          {"used", std::move(used)},
          {"bytes", stack.bytes},
          {"phases", phases_json(device, span)}};
}

/// The data may hold any text: nothing of it ends the element that it stands in.
std::string text_of(const Json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

Json data_json(const Profile& profile) {
  const auto span = span_of(profile);
  auto charts = Json::array();
  const auto tables = phase_tables(profile, {});
  std::size_t table = 0;
  for (const auto& process : profile.processes) {
    for (const auto& device : process.devices) {
      auto chart = chart_json(process, device, span);
      add_table(chart, tables[table++]);
      charts.push_back(std::move(chart));
    }
  }
  const auto about = fmt::format("{}, {}; drag or turn the wheel to zoom all of them",
                                 counted(profile.processes.size(), "process"), counted(charts.size(), "chart"));
  return {{"about", about},
          {"notes", profile.notes},
          {"start", 0},
          {"end", span.seconds(span.end)},
          {"charts", std::move(charts)}};
}

}  // namespace

std::string plot_page(const Profile& profile) {
  auto frame = between(lowtide_page_html, lowtide_page_html_end);
  std::string page;
  const auto fill = [&](std::string_view mark, std::string_view with) {
    const auto at = frame.find(mark);
    page += frame.substr(0, at);
    page += with;
    frame.remove_prefix(at + mark.size());
  };
  fill("%DATA%", text_of(data_json(profile)));
  fill("%LIBRARY%", between(lowtide_page_library, lowtide_page_library_end));
  fill("%SCRIPT%", between(lowtide_page_script, lowtide_page_script_end));
  page += frame;
  return page;
}

}  // namespace lowtide::tools
