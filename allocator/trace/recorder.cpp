// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/recorder.hpp"

#include <unistd.h>

#include <new>
#include <optional>

#include "allocator/core/uncancelled.hpp"
#include "allocator/trace/dictionary.hpp"
#include "allocator/trace/lanes.hpp"
#include "allocator/trace/this_process.hpp"
#include "allocator/trace/trace_path.hpp"

namespace lowtide::trace {

/// Destroyed from its end: the threads' lanes before the file that they write to.
class Recorder::State {
 public:
  static Result<std::unique_ptr<State>> make(const TraceSettings& settings, std::string_view version,
                                             std::string_view build_id) {
    if (settings.size < TraceSettings::smallest || settings.size > TraceSettings::largest)
      return fail(Error::format(Code::config, "a trace of %s is not between %s and %s", to_text(settings.size).c_str(),
                                to_text(TraceSettings::smallest).c_str(), to_text(TraceSettings::largest).c_str()));
    auto state = std::make_unique<State>();
    auto path = expand_path(settings.file);
    if (!path) return fail(path.error());
    state->path = *path;
    auto process = ThisProcess::make();
    if (!process) return fail(process.error());
    state->process.emplace(std::move(*process));
    auto fd = make_trace_file(*path);
    if (!fd) return fail(fd.error());
    auto file = TraceFile::make(std::move(*fd), settings.size, version, build_id, state->growth);
    if (!file) return remove_file(*path), fail(file.error());
    state->file = std::move(*file);
    auto lanes = Lanes::make(*state->file, *state->process);
    if (!lanes) return remove_file(*path), fail(lanes.error());
    state->lanes = std::move(*lanes);
    state->dictionary.emplace(*state->file);
    return state;
  }

  std::string path;
  FileGrowth growth;
  std::optional<ThisProcess> process;
  std::unique_ptr<TraceFile> file;
  std::unique_ptr<Lanes> lanes;
  std::optional<Dictionary> dictionary;

 private:
  static void remove_file(const std::string& path) { ::unlink(path.c_str()); }
};

Result<std::unique_ptr<Recorder>> Recorder::start(const TraceSettings& settings, std::string_view version,
                                                  std::string_view build_id) noexcept {
  const Uncancelled uncancelled;
  try {
    auto state = State::make(settings, version, build_id);
    if (!state) return fail(state.error());
    return std::unique_ptr<Recorder>(new Recorder(std::move(*state)));
  } catch (const std::bad_alloc&) {
    return fail(Code::refused, "the host has no memory for a trace");
  }
}

Recorder::Recorder(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Recorder::~Recorder() = default;

void Recorder::record(Event event) noexcept { record(std::span(&event, 1)); }

void Recorder::record(std::span<Event> events) noexcept {
  if (state_->process->is_here()) state_->lanes->append(events);
}

StringId Recorder::intern(std::string_view text) noexcept {
  return state_->process->is_here() ? state_->dictionary->intern(text) : StringId{};
}

StackId Recorder::stack(std::span<const Frame> frames) noexcept {
  return state_->process->is_here() ? state_->dictionary->stack(frames) : StackId{};
}

void Recorder::module(const Module& module) noexcept {
  if (state_->process->is_here()) state_->dictionary->module(module);
}

void Recorder::device(const Device& device) noexcept {
  if (state_->process->is_here()) state_->dictionary->device(device);
}

RecorderCounts Recorder::counts() const noexcept {
  const auto& header = state_->file->header();
  return {header.overwritten, header.dropped, header.dropped_entries};
}

const std::string& Recorder::path() const noexcept { return state_->path; }

}  // namespace lowtide::trace
