// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "tools/commands/trace_commands.hpp"
#include "tools/export/exports.hpp"
#include "tools/trace/load.hpp"
#include "tools/trace/plot.hpp"
#include "tools/trace/profile_builder.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr const char* output_help = "The file to write; - for stdout";

class TraceExport final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("FILE", files_, "Traces")->required();
    app.add_option("--to", format_,
                   "perfetto (a .pftrace for ui.perfetto.dev), snapshot (PyTorch's memory viewer), or csv")
        ->required()
        ->check(CLI::IsMember({"perfetto", "snapshot", "csv"}));
    app.add_option("-o,--output", output_, output_help)->required();
    app.add_option("--pid", pid_, "The process to write, where a snapshot is of several");
    app.footer(
        "Examples:\n"
        "  lowtide trace export --to perfetto -o run.pftrace run/*.ltt\n"
        "  lowtide trace export --to snapshot -o memory.pickle 4711.ltt\n"
        "  lowtide trace export --to csv -o - 4711.ltt | head\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    if (output_ == "-" && format_ != "csv" && stdout_is_terminal())
      throw CommandError(ExitCode::usage, fmt::format("a terminal cannot show {}: name a file with -o", format_));
    auto reader = open_traces(files_);
    const auto process = format_ == "snapshot" ? chosen_process(reader) : 0;
    Output output(output_);
    if (format_ == "perfetto") {
      export_perfetto(reader, output);
    } else if (format_ == "snapshot") {
      export_snapshot(reader, process, output);
    } else {
      export_csv(reader, output);
    }
    output.finish();
    for (const auto& damage : reader.damage())
      fmt::print(stderr, "lowtide: {}: at byte {}: {}\n", damage.path, damage.offset, damage.what);
    return ExitCode::ok;
  }

 private:
  std::uint32_t chosen_process(const trace::Reader& reader) const {
    const auto all = reader.processes();
    std::vector<std::uint32_t> pids;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (all.size() == 1 || all[i].pid == pid_) return i;
      pids.push_back(all[i].pid);
    }
    throw CommandError(ExitCode::usage,
                       fmt::format("a snapshot is of one process, and these traces are of {}: --pid with one of {}",
                                   all.size(), fmt::join(pids, ", ")));
  }

  std::vector<std::string> files_;
  std::string format_;
  std::string output_;
  std::uint32_t pid_ = 0;
};

class TracePlot final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("FILE", files_, "Traces")->required();
    app.add_option("-o,--output", output_,
                   "The file to write: a page (.html), or a picture (.svg); - for a page on stdout")
        ->required();
    app.footer(
        "The page needs no network and no other file. It follows the browser's light or dark mode, and saves its "
        "charts as "
        "PNG.\n\n"
        "Examples:\n"
        "  lowtide trace plot -o memory.html run/*.ltt\n"
        "  lowtide trace plot -o memory.svg 4711.ltt\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto ending = std::filesystem::path(output_).extension();
    if (output_ != "-" && ending != ".html" && ending != ".svg") {
      throw CommandError(
          ExitCode::usage,
          fmt::format("{}: the name says what to draw: .html ends that of a page, .svg of a picture", output_));
    }
    auto reader = open_traces(files_);
    const auto profile = build_profile(reader);
    tell_notes(profile);
    Output output(output_);
    output.write(ending == ".svg" ? plot_svg(profile) : plot_page(profile));
    output.finish();
    return ExitCode::ok;
  }

 private:
  std::vector<std::string> files_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> make_trace_export() { return std::make_unique<TraceExport>(); }
std::unique_ptr<Command> make_trace_plot() { return std::make_unique<TracePlot>(); }

}  // namespace lowtide::tools
