// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/load.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "allocator/trace/format.hpp"
#include "tools/exit_codes.hpp"
#include "tools/trace/log_profile.hpp"
#include "tools/trace/profile_builder.hpp"
#include "tools/view/progress_bar.hpp"

namespace lowtide::tools {
namespace {

std::ifstream open_file(const std::string& path) {
  std::error_code unused;
  if (std::filesystem::is_directory(path, unused)) {
    throw CommandError(ExitCode::usage, fmt::format("{} is a folder, not a trace or a log", path));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (file) return file;
  const auto code = errno == EACCES ? ExitCode::permission : ExitCode::not_found;
  const auto* why = errno == ENOENT ? " (a program that never reaches a GPU leaves no trace)" : "";
  throw CommandError(code, fmt::format("{} cannot be read: {}{}", path, std::strerror(errno), why));
}

/// A bar over the bytes of the files: an event more is its size further.
class EventBar {
 public:
  explicit EventBar(const trace::Reader& reader) {
    for (const auto& process : reader.processes()) {
      std::error_code none;
      const auto size = std::filesystem::file_size(process.path, none);
      if (!none) total_.value += size;
    }
  }
  void event() {
    if (++events_ % 65'536 == 0) bar_.update(0, std::min(total_, Bytes{events_ * sizeof(trace::Event)}), total_);
  }

 private:
  ProgressBar bar_{"reading"};
  std::uint64_t events_ = 0;
  Bytes total_;
};

void append(Profile& all, Profile&& more) {
  std::move(more.processes.begin(), more.processes.end(), std::back_inserter(all.processes));
  std::move(more.notes.begin(), more.notes.end(), std::back_inserter(all.notes));
}

}  // namespace

bool is_trace(const std::string& path) {
  std::error_code unused;
  // A trace cannot be read from a pipe, and a log can be once.
  if (std::filesystem::is_other(path, unused)) return false;
  auto file = open_file(path);
  std::uint64_t magic = 0;
  file.read(reinterpret_cast<char*>(&magic), sizeof(magic));
  return file.gcount() == sizeof(magic) && magic == trace::file_magic;
}

trace::Reader open_traces(const std::vector<std::string>& paths) {
  for (const auto& path : paths) open_file(path);
  auto reader = trace::Reader::open(paths);
  if (!reader) throw CommandError(ExitCode::usage, reader.error().message());
  return std::move(*reader);
}

void for_each_event(trace::Reader& reader, const std::function<void(const trace::TraceEvent&)>& visit) {
  EventBar bar(reader);
  reader.for_each([&](const trace::TraceEvent& event) {
    bar.event();
    visit(event);
  });
}

Profile load_profile(const std::vector<std::string>& paths) {
  std::vector<std::string> traces;
  LogReader logs;
  for (const auto& path : paths) {
    if (is_trace(path)) {
      traces.push_back(path);
      continue;
    }
    const auto before = logs.lines();
    auto file = open_file(path);
    logs.read(file);
    if (logs.lines() == before) {
      throw CommandError(ExitCode::usage,
                         fmt::format("{} is no trace, and has no line about memory that Lowtide knows", path));
    }
  }
  Profile profile;
  if (!traces.empty()) {
    auto reader = open_traces(traces);
    profile = build_profile(reader);
  }
  append(profile, std::move(logs).take());
  return profile;
}

}  // namespace lowtide::tools
