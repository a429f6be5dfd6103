// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/toml_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "allocator/base/unique_fd.hpp"
#include "allocator/policy/keys.hpp"
#include "allocator/policy/match_keys.hpp"
#include "allocator/policy/toml_text.hpp"
#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr std::size_t most_of_a_path = 120;

Failure unreadable(const std::string& path, const char* why) {
  return fail(Error::format(Code::config, "configuration file %s: %s", shown(path, most_of_a_path).c_str(), why));
}

Result<std::string> read_file(const std::string& path) {
  // Without O_NONBLOCK a named pipe would hang the host.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return unreadable(path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return unreadable(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) return unreadable(path, "is a directory");
  if (!S_ISREG(status.st_mode)) return unreadable(path, "is not a regular file");
  std::string text(most_bytes + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const auto n = ::read(file.get(), text.data() + length, text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(path, std::strerror(errno));
    if (n == 0) break;
    length += static_cast<std::size_t>(n);
  }
  if (length > most_bytes) return unreadable(path, "is larger than 1 MiB");
  text.resize(length);
  return text;
}

struct Entry {
  std::string key;
  Value value;
  toml::source_index line = 0;
  bool empty_table = false;
  bool unfit = false;    // an array with something else than strings
  std::size_t rule = 0;  // the [[match]] it stands in, counted from 1
};

constexpr std::string_view rules_key = "match";

std::string text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  std::array<char, 40> digits{};
  auto end = digits.data();
  if (const auto* number = node.as_integer()) {
    end = std::to_chars(digits.data(), digits.data() + digits.size(), number->get()).ptr;
  } else if (const auto* real = node.as_floating_point()) {
    end = std::to_chars(digits.data(), digits.data() + digits.size(), real->get()).ptr;
  } else {
    return "(a date or time)";
  }
  return std::string(digits.data(), end);
}

Entry entry_of(std::string key, const toml::node& node) {
  Entry entry{std::move(key), {}, node.source().begin.line};
  const auto* array = node.as_array();
  if (array == nullptr) {
    entry.value = text_of(node);
    return entry;
  }
  std::vector<std::string> list;
  for (const auto& element : *array) {
    entry.unfit = entry.unfit || !element.is_string();
    list.push_back(element.is_string() ? element.as_string()->get() : std::string());
  }
  entry.value = std::move(list);
  return entry;
}

// The parser bounds the nesting, hence the depth of this recursion.
void flatten(std::string key, const toml::node& node, std::vector<Entry>& entries) {
  const auto* table = node.as_table();
  if (table == nullptr) {
    entries.push_back(entry_of(std::move(key), node));
  } else if (table->empty()) {
    entries.push_back({std::move(key), {}, node.source().begin.line, true});
  } else {
    for (const auto& [name, inner] : *table) flatten(key + '.' + std::string(name.str()), inner, entries);
  }
}

/// The tables under [[match]]. Their entries are appended, and their lines are the answer.
std::vector<toml::source_index> flatten_rules(const toml::array& rules, std::vector<Entry>& entries) {
  std::vector<toml::source_index> lines;
  for (const auto& rule : rules) {
    std::vector<Entry> of_one;
    for (const auto& [key, node] : *rule.as_table()) flatten(std::string(key.str()), node, of_one);
    lines.push_back(rule.source().begin.line);
    for (auto& entry : of_one) {
      entry.rule = lines.size();
      entries.push_back(std::move(entry));
    }
  }
  return lines;
}

std::string place_of_rule(const std::string& name, toml::source_index line, std::size_t rule) {
  return name + ':' + std::to_string(line) + ": match rule " + std::to_string(rule) + ": ";
}

Status apply_entry(Configuration& configuration, const std::string& where, const Entry& entry) {
  if (entry.key == rules_key) {
    return fail(Error::format(Code::config, "%smatch: is not a list of rules: write [[match]]", where.c_str()));
  }
  if (entry.empty_table) {
    if (is_table_of_keys(entry.key)) return {};
    return fail(unknown_key(where, entry.key));
  }
  // An unfit list is refused by the key itself, as a list that holds an empty pattern; an empty one of a list key is
  // fine.
  return set_key(configuration, where, entry.key, entry.unfit ? Value(std::vector<std::string>{""}) : entry.value);
}

Status apply_table(Configuration& configuration, const std::string& name, const toml::table& table) {
  std::vector<Entry> entries;
  std::vector<toml::source_index> rule_lines;
  for (const auto& [key, node] : table) {
    const auto* array = node.as_array();
    if (key.str() == rules_key && array != nullptr && (array->empty() || array->is_array_of_tables()))
      rule_lines = flatten_rules(*array, entries);
    else if (key.str() == rules_key)
      entries.push_back({std::string(rules_key), {}, node.source().begin.line, false, true});
    else
      flatten(std::string(key.str()), node, entries);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });
  std::vector<MatchRule> rules(rule_lines.size());
  for (const auto& entry : entries) {
    const auto where = name + ':' + std::to_string(entry.line) + ": ";
    const auto status = entry.rule == 0
                            ? apply_entry(configuration, where, entry)
                            : set_match_key(rules[entry.rule - 1], place_of_rule(name, entry.line, entry.rule),
                                            entry.key, std::get_if<std::string>(&entry.value));
    if (!status) return status;
  }
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (auto status = check_complete(rules[i], place_of_rule(name, rule_lines[i], i + 1)); !status) return status;
  }
  configuration.rules = std::move(rules);
  return {};
}

}  // namespace

Status apply_file(Configuration& configuration, const std::string& path) {
  const auto text = read_file(path);
  if (!text) return fail(text.error());
  const auto name = shown(path, most_of_a_path);
  if (const auto line = stray_non_ascii(*text)) {
    return fail(Error::format(Code::config, "%s:%u: a character that is not ASCII, outside of a string and a comment",
                              name.c_str(), *line));
  }
  const toml::parse_result parsed = toml::parse(std::string_view(*text), std::string_view(name));
  if (!parsed) {
    const auto& error = parsed.error();
    return fail(Error::format(Code::config, "%s:%u: %s", name.c_str(), static_cast<unsigned>(error.source().begin.line),
                              shown(error.description(), 180).c_str()));
  }
  return apply_table(configuration, name, parsed.table());
}

}  // namespace lowtide
