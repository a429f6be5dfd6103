// SPDX-License-Identifier: Apache-2.0
#include "shim/caller.hpp"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "shim/native_stack.hpp"
#include "shim/process.hpp"

namespace lowtide {
namespace {

/// The loaded object that a frame's code lies in; the loader keeps the name as long as there are such frames.
struct Place {
  const char* path = nullptr;
  std::uintptr_t base = 0;
};

struct Places {
  std::span<const std::uintptr_t> stack;
  std::array<Place, NativeStack::most> of_frame{};
};

int find_places(dl_phdr_info* object, std::size_t, void* argument) {
  auto& places = *static_cast<Places*>(argument);
  for (const auto& header : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
    const auto start = object->dlpi_addr + header.p_vaddr;
    for (std::size_t i = 0; i < places.stack.size(); ++i) {
      if (places.stack[i] - start < header.p_memsz) places.of_frame[i] = {object->dlpi_name, start};
    }
  }
  return 0;
}

std::string file_name(std::string_view path) {
  std::array<char, 4096> program{};
  if (path.empty()) {  // the program itself
    const auto length = ::readlink("/proc/self/exe", program.data(), program.size());
    path = {program.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
  }
  return std::string(path.substr(path.rfind('/') + 1));
}

/// Ours, also in the place of torch_memory_saver's; the driver; a shared runtime.
bool is_between(std::string_view file) {
  constexpr std::string_view starts[] = {"liblowtide", "torch_memory_saver_hook_mode", "libcudart.so", "libcuda.so",
                                         "libamdhip64.so"};
  return std::any_of(std::begin(starts), std::end(starts), [&](auto start) { return file.starts_with(start); });
}

/// One pass over the loaded objects for all frames: dladdr would read an object's whole symbol table for each.
std::vector<std::string> libraries_on_the_stack() {
  const auto stack = NativeStack::here();
  Places places{stack.addresses()};
  ::dl_iterate_phdr(&find_places, &places);
  std::vector<std::string> files;
  std::uintptr_t last_base = 0;
  for (const auto& place : std::span(places.of_frame).first(places.stack.size())) {
    if (place.path == nullptr || place.base == last_base) continue;
    last_base = place.base;
    auto file = file_name(place.path);
    if (!is_between(file)) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

const std::vector<std::string>& CallingThread::libraries() {
  if (!libraries_) libraries_ = libraries_on_the_stack();
  return *libraries_;
}

const std::vector<PythonFrame>& CallingThread::python_frames() {
  if (!python_) python_ = walk_python(&Process::symbol);
  return python_->frames;
}

bool CallingThread::is_called_by(std::span<const std::string> patterns) {
  return !patterns.empty() && !libraries().empty() && matches_any(patterns, libraries().front());
}

}  // namespace lowtide
