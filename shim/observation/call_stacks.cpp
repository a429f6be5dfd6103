// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/call_stacks.hpp"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "shim/native_stack.hpp"
#include "shim/python_frames.hpp"

namespace lowtide {
namespace {

struct LoadedModule {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  std::string path;
  std::string build_id;
};

int count_loads(dl_phdr_info* object, std::size_t, void* argument) {
  *static_cast<unsigned long long*>(argument) = object->dlpi_adds;
  return 1;
}

unsigned long long loads() noexcept {
  unsigned long long count = 0;
  ::dl_iterate_phdr(&count_loads, &count);
  return count;
}

/// Hexadecimal; "" if the notes of a loaded object have none.
std::string build_id_of(const char* notes, std::size_t size) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, notes, sizeof note);
    const std::size_t whole = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (whole > size) return "";
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes + sizeof note, "GNU", 4) == 0) {
      constexpr std::string_view digits = "0123456789abcdef";
      std::string text;
      for (const char sign : std::span(notes + sizeof note + padded(note.n_namesz), note.n_descsz)) {
        const auto byte = static_cast<unsigned char>(sign);
        text += digits[byte / 16];
        text += digits[byte % 16];
      }
      return text;
    }
    notes += whole;
    size -= whole;
  }
  return "";
}

std::string path_of(const char* name) {
  if (name != nullptr && *name != '\0') return name;
  std::array<char, 4096> program{};
  const auto length = ::readlink("/proc/self/exe", program.data(), program.size());
  return length <= 0 ? "" : std::string(program.data(), static_cast<std::size_t>(length));
}

/// The loader's lock is held: nothing that may wait for another thread happens here.
int add_modules(dl_phdr_info* object, std::size_t, void* argument) {
  auto& modules = *static_cast<std::vector<LoadedModule>*>(argument);
  const std::span headers(object->dlpi_phdr, object->dlpi_phnum);
  try {
    std::string build_id;
    for (const auto& header : headers) {
      if (header.p_type != PT_NOTE || !build_id.empty()) continue;
      build_id = build_id_of(reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr), header.p_memsz);
    }
    for (const auto& header : headers) {
      if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
      const auto start = object->dlpi_addr + header.p_vaddr;
      modules.push_back({start, start + header.p_memsz, header.p_offset, path_of(object->dlpi_name), build_id});
    }
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}

}  // namespace

trace::StackId CallStacks::here() noexcept {
  try {
    if (which_ == TraceSettings::Stacks::off) return {};
    if (which_ == TraceSettings::Stacks::python) {
      if (const auto stack = python(); stack != trace::StackId{}) return stack;
    }
    return native();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

trace::StackId CallStacks::python() {
  std::vector<trace::Frame> frames;
  for (const auto& frame : walk_python(symbol_).frames)
    frames.push_back({0, recorder_.intern(frame.function), recorder_.intern(frame.path), 0});
  return frames.empty() ? trace::StackId{} : recorder_.stack(frames);
}

trace::StackId CallStacks::native() {
  tell_modules();
  const auto stack = NativeStack::here();
  std::array<trace::Frame, NativeStack::most> frames;
  std::size_t count = 0;
  for (const auto address : stack.addresses()) frames[count++].address = address;
  return recorder_.stack(std::span(frames).first(count));
}

void CallStacks::tell_modules() {
  const auto now = loads();
  const std::lock_guard lock(mutex_);
  if (now == loaded_) return;
  std::vector<LoadedModule> modules;
  ::dl_iterate_phdr(&add_modules, &modules);
  for (const auto& module : modules) {
    if (!told_.emplace(module.start, module.path).second) continue;
    recorder_.module({module.start, module.end, module.offset, module.path, module.build_id});
  }
  loaded_ = now;
}

}  // namespace lowtide
