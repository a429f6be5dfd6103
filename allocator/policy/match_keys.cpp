// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/match_keys.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

bool is_pattern(std::string_view value) { return !value.empty() && value.find('\0') == std::string_view::npos; }

template <auto member>
bool set_pattern(MatchRule& rule, std::string_view value) {
  if (!is_pattern(value)) return false;
  rule.*member = std::string(value);
  return true;
}

template <auto member>
bool set_plain_pattern(MatchRule& rule, std::string_view value) {
  return value.find('/') == std::string_view::npos && set_pattern<member>(rule, value);
}

template <auto member>
bool set_name(MatchRule& rule, std::string_view value) {
  const auto name = TagName::parse(value);
  if (name) rule.*member = *name;
  return name.has_value();
}

std::optional<std::uint64_t> bytes_of(std::string_view text) {
  const auto size = parse_size(text);
  return size ? std::optional(size->value) : std::nullopt;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size() || number == 0) return std::nullopt;
  return number;
}

/// "A..B", "A..", "..B" or "A", both ends included.
std::optional<NumberRange> range_of(std::string_view text, std::optional<std::uint64_t> (*end_of)(std::string_view)) {
  const auto dots = text.find("..");
  const auto first = trimmed(text.substr(0, dots));
  const auto last = dots == std::string_view::npos ? first : trimmed(text.substr(dots + 2));
  if (first.empty() && last.empty()) return std::nullopt;
  NumberRange range;
  if (!first.empty()) {
    const auto least = end_of(first);
    if (!least) return std::nullopt;
    range.least = *least;
  }
  if (!last.empty()) {
    const auto most = end_of(last);
    if (!most || *most < range.least) return std::nullopt;
    range.most = *most;
  }
  return range;
}

template <auto member, auto end_of>
bool set_range(MatchRule& rule, std::string_view value) {
  const auto range = range_of(value, end_of);
  if (range) rule.*member = *range;
  return range.has_value();
}

constexpr std::string_view a_name = "a name: 1 to 63 of A-Z a-z 0-9 _ -";

constexpr std::array table{
    MatchKey{"tag", a_name, "What the allocation is tagged with.", set_name<&MatchRule::tag>},
    MatchKey{"python", "a pattern of a module, such as vllm.lora.*, or of a path",
             "A Python function that the allocating thread is in is of such a module. A pattern with a `/` is compared "
             "with the path of its file.",
             set_pattern<&MatchRule::python>},
    MatchKey{"function", "a pattern of a Python function's name, such as _create_*",
             "A Python function that the allocating thread is in has such a name; the same one that `python` is about.",
             set_plain_pattern<&MatchRule::function>},
    MatchKey{"library", "a file name pattern without folders, such as libfoo*",
             "A native library on the allocating thread's stack has such a file name.",
             set_plain_pattern<&MatchRule::library>},
    MatchKey{"size", "a range of sizes such as 64MiB.., ..1GiB or 1MiB..64MiB", "How much is asked for.",
             set_range<&MatchRule::size, bytes_of>},
    MatchKey{"order", "a range of numbers from 1 on, such as 1..100",
             "Which one of the process's allocations it is: all are counted, from 1.",
             set_range<&MatchRule::order, number_of>},
    MatchKey{"phase", a_name, "The phase that the program said last, by `lowtide_phase` or `lowtide.phase`.",
             set_name<&MatchRule::phase>},
};

Failure wrong(std::string_view where, const std::string& what) {
  return fail(Error::format(Code::config, "%s%s", std::string(where).c_str(), what.c_str()));
}

}  // namespace

std::span<const MatchKey> match_keys() noexcept { return table; }

Status set_match_key(MatchRule& rule, std::string_view where, std::string_view name, const std::string* value) {
  const auto key = std::find_if(table.begin(), table.end(), [&](const MatchKey& each) { return each.name == name; });
  if (key == table.end()) {
    std::vector<std::string_view> names;
    names.reserve(table.size());
    for (const auto& each : table) names.push_back(each.name);
    return wrong(where, "unknown key \"" + shown(name, 80) + '"' + did_you_mean(name, names));
  }
  if (value != nullptr && key->set(rule, *value)) return {};
  const auto what = value == nullptr ? "this array or table" : '"' + shown(*value, 40) + '"';
  return wrong(where, std::string(name) + ": " + what + " is not " + std::string(key->allowed));
}

Status check_complete(const MatchRule& rule, std::string_view where) {
  if (rule.tag.view().empty()) return wrong(where, "has no tag");
  if (rule.library || rule.python || rule.function || rule.size || rule.order || rule.phase) return {};
  return wrong(where,
               "has no condition: say python, function, library, size, order or phase; the tag of everything is "
               "the default tag");
}

}  // namespace lowtide
