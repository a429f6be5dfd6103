// SPDX-License-Identifier: Apache-2.0
#include "tools/view/status_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "tools/view/counted.hpp"
#include "tools/view/table.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_of_a_command = 200;
constexpr std::size_t most_of_a_word = 64;
constexpr std::size_t most_of_a_reason = 500;

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  result.resize(result.size() - 2);
  return result;
}

std::string gate_text(const ProcessStatus& status) {
  if (status.gate == "open") return coloured("open", Colour::green);
  auto text = coloured(printable(status.gate, most_of_a_word), Colour::yellow);
  const char* before = ", holding for ";
  for (const auto& tag : status.held_tags) text += std::exchange(before, ", ") + printable(tag, most_of_a_word);
  return text;
}

std::string transition_text(const TransitionStatus& transition) {
  const auto what = transition.step == "pause"    ? std::string("pausing")
                    : transition.step == "resume" ? std::string("resuming")
                                                  : printable(transition.step, most_of_a_word);
  if (transition.total.value == 0) return what + ": nothing copied yet";
  return fmt::format("{}: {} of {} copied", what, to_text(transition.done), to_text(transition.total));
}

std::string devices_text(const ProcessStatus& status) {
  Table table({">DEVICE", "NAME", "BACKEND", ">FREE", ">TOTAL", "REASON"});
  for (const auto& device : status.devices) {
    table.add({std::to_string(device.device), printable(device.name, most_of_a_word),
               printable(device.backend, most_of_a_word), to_text(device.free), to_text(device.total),
               printable(device.reason, most_of_a_reason)});
  }
  return table.text();
}

std::string tags_text(const ProcessStatus& status) {
  Table table(
      {"TAG", ">DEVICE", "PAUSE", "STATE", ">BLOCKS", ">RESIDENT", ">PARKED", ">BACKUP", ">SLACK", "SHARED BY"});
  for (const auto& tag : status.tags) {
    table.add({printable(tag.tag, most_of_a_word), std::to_string(tag.device), printable(tag.action, most_of_a_word),
               printable(tag.state, most_of_a_word), std::to_string(tag.blocks), to_text(tag.resident),
               to_text(tag.parked), to_text(tag.backup), to_text(tag.slack), printable(tag.shared_by, most_of_a_word)});
  }
  return table.text();
}

/// Of the tags whose content somebody looks after, or has to.
std::string contents_text(const ProcessStatus& status) {
  Table table(
      {"TAG", ">DEVICE", "CONTENT", ">VERSION", ">STALE", ">RESIDUE", ">UPDATES", ">ABORTED", ">REFUSED", ">REPEATED"});
  bool any = false;
  for (const auto& tag : status.tags) {
    const bool quiet = tag.committed + tag.aborted + tag.refused + tag.repeated == 0 && !tag.updating_to;
    if (quiet && tag.stale.value == 0) continue;
    any = true;
    auto version = std::to_string(tag.version);
    if (tag.updating_to) version += " -> " + std::to_string(*tag.updating_to);
    table.add({printable(tag.tag, most_of_a_word), std::to_string(tag.device), printable(tag.freshness, most_of_a_word),
               version, to_text(tag.stale), to_text(tag.residue), std::to_string(tag.committed),
               std::to_string(tag.aborted), std::to_string(tag.refused), std::to_string(tag.repeated)});
  }
  return any ? table.text() : "";
}

constexpr std::size_t most_of_a_caller = 100;

/// The titles are the keys of a [[match]], and the cells their values.
void add_caller(std::vector<std::string>& cells, const CallerStatus& caller) {
  for (const auto* word : {&caller.python, &caller.function, &caller.library})
    cells.push_back(printable(*word, most_of_a_caller));
}

std::string origins_text(const ProcessStatus& status) {
  Table table({"TAG", "FROM", ">BLOCKS", ">BYTES", "PYTHON", "FUNCTION", "LIBRARY"});
  for (const auto& origin : status.origins) {
    std::vector<std::string> cells{
        printable(origin.tag, most_of_a_word),
        printable(origin.from, most_of_a_word) + (origin.rule == 0 ? "" : ' ' + std::to_string(origin.rule)),
        std::to_string(origin.blocks), to_text(origin.bytes)};
    add_caller(cells, origin.caller);
    table.add(std::move(cells));
  }
  return table.text();
}

std::string untagged_text(const ProcessStatus& status) {
  Table table({">CALLS", ">ASKED FOR", "PYTHON", "FUNCTION", "LIBRARY"});
  for (const auto& each : status.untagged) {
    std::vector<std::string> cells{std::to_string(each.allocations), to_text(each.asked)};
    add_caller(cells, each.caller);
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace

namespace {

std::string policy_text(const PolicyStatus& policy) {
  auto text = fmt::format("  policy {}; role {}; phase {}; breaches {}, waits {}, refusals {}\n", policy.mode,
                          policy.role.empty() ? "none" : printable(policy.role, most_of_a_word),
                          printable(policy.phase, most_of_a_caller), policy.breaches, policy.waits, policy.refusals);
  constexpr std::size_t most_of_a_note = 400;
  for (const auto& note : policy.notes) text += fmt::format("    {}\n", printable(note, most_of_a_note));
  return text;
}

}  // namespace

std::string status_text(const ProcessStatus& status) {
  auto text = fmt::format("process {}  {}\n", status.pid, printable(status.command, most_of_a_command));
  if (status.simulated) text += "  " + coloured("simulated: no GPU is involved", Colour::yellow) + '\n';
  text +=
      fmt::format("  gate {}; default tag {}; captures under way {}\n", gate_text(status),
                  status.default_tag.empty() ? "none" : printable(status.default_tag, most_of_a_word), status.captures);
  if (status.transition) text += fmt::format("  {}\n", transition_text(*status.transition));
  text += indented(devices_text(status));
  text += status.tags.empty() ? "  no tagged memory\n" : indented(tags_text(status));
  if (const auto contents = contents_text(status); !contents.empty()) text += indented(contents);
  if (!status.origins.empty()) text += indented(origins_text(status));
  if (!status.untagged.empty()) text += "  asked for without a tag:\n" + indented(untagged_text(status));
  if (status.python_hidden)
    text += "  callers in Python are not visible in this process: its Python lets nobody read them\n";
  if (status.policy) text += policy_text(*status.policy);
  text +=
      fmt::format("  host: backups {}, kept for the next pause {}\n", to_text(status.backup), to_text(status.retained));
  if (status.on_disk.value > 0) text += fmt::format("  disk: backups {}\n", to_text(status.on_disk));
  return text;
}

std::string report_text(pid_t pid, std::string_view verb, const nlohmann::json& report) {
  const Bytes parked{report.at("bytes_parked").get<std::uint64_t>()};
  const Bytes discarded{report.at("bytes_discarded").get<std::uint64_t>()};
  const Bytes kept{report.at("bytes_kept").get<std::uint64_t>()};
  std::vector<std::string> parts;
  if (parked.value > 0 || discarded.value == 0) parts.push_back(fmt::format("{} {}", verb, to_text(parked)));
  if (discarded.value > 0 && verb == parked_verb) parts.push_back(fmt::format("dropped {}", to_text(discarded)));
  if (discarded.value > 0 && verb != parked_verb) {
    parts.push_back(fmt::format("{} came back without their bytes", to_text(discarded)));
  }
  if (kept.value > 0) parts.push_back(fmt::format("kept {}", to_text(kept)));
  auto text = fmt::format("process {}: {}", pid, fmt::join(parts, ", "));
  text += fmt::format(", {}, {:.2f} s\n", counted(report.at("blocks").get<std::uint64_t>(), "block"),
                      report.at("seconds").get<double>());
  for (const auto& device : report.at("devices")) {
    text += fmt::format("  device {}: free {} -> {}\n", device.at("device").get<int>(),
                        to_text(Bytes{device.at("free_before").get<std::uint64_t>()}),
                        to_text(Bytes{device.at("free_after").get<std::uint64_t>()}));
  }
  return text;
}

}  // namespace lowtide::tools
