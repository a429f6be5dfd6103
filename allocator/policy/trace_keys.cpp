// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/trace_keys.hpp"

#include <array>

#include "allocator/policy/words.hpp"
#include "allocator/trace/trace_path.hpp"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 3> stacks_words{"off", "native", "python"};

constexpr std::string_view a_path =
    "an absolute path, in which %p is the process's number, %h the host's name and %% a %";

bool is_path(std::string_view value) {
  return value.find('\0') == std::string_view::npos && trace::expand_path(value).has_value();
}

bool set_file(Configuration& configuration, const TagName&, std::string_view value) {
  if (!is_path(value)) return false;
  configuration.trace.file = value;
  return true;
}

bool set_interval(Configuration& configuration, const TagName&, std::string_view value) {
  const auto interval = parse_duration(value);
  if (interval) configuration.trace.interval = *interval;
  return interval.has_value();
}

bool set_metrics_file(Configuration& configuration, const TagName&, std::string_view value) {
  if (!is_path(value)) return false;
  configuration.metrics.file = value;
  return true;
}

bool set_metrics_interval(Configuration& configuration, const TagName&, std::string_view value) {
  const auto interval = parse_duration(value);
  if (!interval || *interval < MetricsSettings::shortest) return false;
  configuration.metrics.interval = *interval;
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
        a_path,
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
    Key{"trace.interval",
        "a duration such as 20s, 500ms, 2m or 0",
        "`100ms`",
        "How often the devices are looked at while a trace is recorded, beside what happens; with 0 only then.",
        {},
        set_interval,
        nullptr},
    Key{"metrics.file",
        a_path,
        "none",
        "Where the numbers of the process are written in Prometheus's text format, for the textfile collector of "
        "node_exporter, whose files end in `.prom`. Folders are not made.",
        {},
        set_metrics_file,
        nullptr},
    Key{"metrics.interval",
        "a duration of 100ms or more",
        "`10s`",
        "How often that is written anew, beside the end of every pause and resume.",
        {},
        set_metrics_interval,
        nullptr},
};

}  // namespace

std::span<const Key> trace_keys() noexcept { return table; }

}  // namespace lowtide
