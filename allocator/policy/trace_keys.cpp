// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/trace_keys.hpp"

#include <array>

#include "allocator/policy/words.hpp"
#include "allocator/trace/trace_path.hpp"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 3> stacks_words{"off", "native", "python"};

bool set_file(Configuration& configuration, const TagName&, std::string_view value) {
  if (value.find('\0') != std::string_view::npos || !trace::expand_path(value)) return false;
  configuration.trace.file = value;
  return true;
}

bool set_size(Configuration& configuration, const TagName&, std::string_view value) {
  const auto size = parse_size(value);
  if (!size || *size < TraceSettings::smallest || *size > TraceSettings::largest) return false;
  configuration.trace.size = *size;
  return true;
}

bool set_stacks(Configuration& configuration, const TagName&, std::string_view value) {
  using Stacks = TraceSettings::Stacks;
  for (const auto stacks : {Stacks::off, Stacks::native, Stacks::python}) {
    if (value != stacks_words[static_cast<std::size_t>(stacks)]) continue;
    configuration.trace.stacks = stacks;
    return true;
  }
  return false;
}

constexpr std::array table{
    Key{"trace.file",
        "an absolute path, in which %p is the process's number, %h the host's name and %% a %",
        "none",
        "Where what happens to the process's memory is recorded, for `lowtide trace`. An older trace there is "
        "replaced; folders are not made.",
        {},
        set_file,
        nullptr},
    Key{"trace.size",
        "a size from 1MiB to 1TiB",
        "`256MiB`",
        "What the file grows to. After that the oldest events make room for new ones.",
        {},
        set_size,
        nullptr},
    Key{"trace.stacks", "off, native or python", "`off`",
        "Which call stacks are recorded with allocations: none, those of native code, or those of Python where the "
        "thread runs it.",
        stacks_words, set_stacks, nullptr},
};

}  // namespace

std::span<const Key> trace_keys() noexcept { return table; }

}  // namespace lowtide
