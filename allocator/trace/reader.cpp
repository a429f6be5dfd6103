// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/reader.hpp"

#include <deque>

#include "allocator/trace/file_input.hpp"
#include "allocator/trace/merge.hpp"
#include "allocator/trace/stored_dictionary.hpp"

namespace lowtide::trace {

class Reader::State {
 public:
  struct File {
    FileInput input;
    std::vector<ChunkPlace> chunks;
    StoredDictionary dictionary;
    std::uint64_t to_realtime;
  };

  Status add(const std::string& path) {
    auto input = FileInput::open(path);
    if (!input) return fail(input.error());
    auto chunks = input->chunks(damage);
    StoredDictionary dictionary(*input, chunks, damage);
    // Two processes of one machine have one clock; what its owner did to the other clock meanwhile is nothing to it.
    auto to_realtime = input->to_realtime();
    for (const auto& file : files) {
      if (!input->boot_id().empty() && file.input.boot_id() == input->boot_id()) to_realtime = file.to_realtime;
    }
    processes.push_back(input->process());
    files.push_back({std::move(*input), std::move(chunks), std::move(dictionary), to_realtime});
    return {};
  }

  const File* file(std::uint32_t process) const { return process < files.size() ? &files[process] : nullptr; }

  std::deque<File> files;
  std::vector<TracedProcess> processes;
  DamageList damage;
};

Result<Reader> Reader::open(std::span<const std::string> paths) {
  auto state = std::make_unique<State>();
  for (const auto& path : paths) {
    if (const auto added = state->add(path); !added) return fail(added.error());
  }
  return Reader(std::move(state));
}

Reader::Reader(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

std::span<const TracedProcess> Reader::processes() const noexcept { return state_->processes; }

std::string_view Reader::text(std::uint32_t process, StringId id) const noexcept {
  const auto* file = state_->file(process);
  return file == nullptr ? std::string_view("") : file->dictionary.text(id);
}

std::vector<TracedFrame> Reader::stack(std::uint32_t process, StackId id) const {
  const auto* file = state_->file(process);
  return file == nullptr ? std::vector<TracedFrame>() : file->dictionary.stack(id);
}

std::vector<TracedModule> Reader::modules(std::uint32_t process) const {
  const auto* file = state_->file(process);
  return file == nullptr ? std::vector<TracedModule>() : file->dictionary.modules();
}

std::vector<TracedDevice> Reader::devices(std::uint32_t process) const {
  const auto* file = state_->file(process);
  return file == nullptr ? std::vector<TracedDevice>() : file->dictionary.devices();
}

void Reader::for_each(const std::function<void(const TraceEvent&)>& visit) {
  std::vector<MergeInput> inputs;
  inputs.reserve(state_->files.size());
  for (const auto& file : state_->files) inputs.push_back({file.input, file.chunks, file.to_realtime});
  merge(inputs, state_->damage, visit);
}

std::span<const Damage> Reader::damage() const noexcept { return state_->damage.all(); }

}  // namespace lowtide::trace
