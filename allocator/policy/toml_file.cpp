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
#include "allocator/policy/rule_keys.hpp"
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
  std::size_t list = 0;  // of which of the lists below it is a part
  std::size_t item = 0;  // of which table of that list, counted from 1; 0: it stands in none
};

struct ListName {
  std::string_view key;
  std::string_view one;
  std::string_view many;
};
constexpr std::array lists{ListName{"match", "match rule", "rules"}, ListName{"rule", "rule", "rules"},
                           ListName{"phase", "phase", "phases"}};

/// The lists of a file, as far as they are read; `lines` are those of their tables.
struct Lists {
  std::vector<MatchRule> matches;
  std::vector<Rule> rules;
  std::vector<Phase> phases;
  std::array<std::vector<toml::source_index>, lists.size()> lines;
};

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

/// The tables of a list. Their entries are appended, and their lines are the answer.
std::vector<toml::source_index> flatten_list(std::size_t list, const toml::array& tables, std::vector<Entry>& entries) {
  std::vector<toml::source_index> lines;
  for (const auto& table : tables) {
    std::vector<Entry> of_one;
    for (const auto& [key, node] : *table.as_table()) flatten(std::string(key.str()), node, of_one);
    lines.push_back(table.source().begin.line);
    for (auto& entry : of_one) {
      entry.list = list;
      entry.item = lines.size();
      entries.push_back(std::move(entry));
    }
  }
  return lines;
}

std::string place_of_item(const std::string& name, toml::source_index line, std::size_t list, std::size_t item) {
  return name + ':' + std::to_string(line) + ": " + std::string(lists[list].one) + ' ' + std::to_string(item) + ": ";
}

std::size_t list_named(std::string_view key) {
  return static_cast<std::size_t>(
      std::find_if(lists.begin(), lists.end(), [&](const auto& each) { return each.key == key; }) - lists.begin());
}

Status apply_entry(Configuration& configuration, const std::string& where, const Entry& entry) {
  if (const auto list = list_named(entry.key); list < lists.size()) {
    return fail(Error::format(Code::config, "%s%s: is not a list of %s: write [[%s]]", where.c_str(), entry.key.c_str(),
                              lists[list].many.data(), entry.key.c_str()));
  }
  if (entry.empty_table) {
    if (is_table_of_keys(entry.key)) return {};
    return fail(unknown_key(where, entry.key));
  }
  return set_key(configuration, where, entry.key, entry.value);
}

Status apply_item(Lists& read, const std::string& name, const Entry& entry) {
  const auto where = place_of_item(name, entry.line, entry.list, entry.item);
  const auto at = entry.item - 1;
  switch (entry.list) {
    case 0: return set_match_key(read.matches[at], where, entry.key, std::get_if<std::string>(&entry.value));
    case 1: return set_rule_key(read.rules[at], where, entry.key, entry.value);
    default: return set_phase_key(read.phases[at], where, entry.key, entry.value);
  }
}

template <class T>
Status check_items(const Lists& read, const std::string& name, std::size_t list, const std::vector<T>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto where = place_of_item(name, read.lines[list][i], list, i + 1);
    if (auto status = check_complete(items[i], where); !status) return status;
  }
  return {};
}

/// The numbers and lines by which messages name rules and phases.
void number(Lists& read) {
  for (std::size_t i = 0; i < read.rules.size(); ++i) {
    read.rules[i].number = static_cast<unsigned>(i + 1);
    read.rules[i].line = static_cast<unsigned>(read.lines[1][i]);
  }
  for (std::size_t i = 0; i < read.phases.size(); ++i) read.phases[i].line = static_cast<unsigned>(read.lines[2][i]);
}

std::vector<Entry> entries_of(const toml::table& table, Lists& read) {
  std::vector<Entry> entries;
  for (const auto& [key, node] : table) {
    const auto list = list_named(key.str());
    const auto* array = node.as_array();
    if (list < lists.size() && array != nullptr && (array->empty() || array->is_array_of_tables()))
      read.lines[list] = flatten_list(list, *array, entries);
    else if (list < lists.size())
      entries.push_back({std::string(key.str()), {}, node.source().begin.line, false, true});
    else
      flatten(std::string(key.str()), node, entries);
  }
  // An unfit list is refused by its key, as a list that holds an empty text; an empty one of a list key is fine.
  for (auto& entry : entries) {
    if (entry.unfit) entry.value = std::vector<std::string>{""};
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });
  return entries;
}

Status apply_table(Configuration& configuration, const std::string& name, const toml::table& table) {
  Lists read;
  const auto entries = entries_of(table, read);
  read.matches.resize(read.lines[0].size());
  read.rules.resize(read.lines[1].size());
  read.phases.resize(read.lines[2].size());
  for (const auto& entry : entries) {
    const auto where = name + ':' + std::to_string(entry.line) + ": ";
    const auto status = entry.item == 0 ? apply_entry(configuration, where, entry) : apply_item(read, name, entry);
    if (!status) return status;
  }
  auto status = check_items(read, name, 0, read.matches);
  if (status) status = check_items(read, name, 1, read.rules);
  if (status) status = check_items(read, name, 2, read.phases);
  if (!status) return status;
  number(read);
  configuration.rules = std::move(read.matches);
  configuration.sync.rules = std::move(read.rules);
  configuration.sync.phases = std::move(read.phases);
  return {};
}

Result<toml::table> parse_file(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return fail(text.error());
  const auto name = shown(path, most_of_a_path);
  if (const auto line = stray_non_ascii(*text)) {
    return fail(Error::format(Code::config, "%s:%u: a character that is not ASCII, outside of a string and a comment",
                              name.c_str(), *line));
  }
  toml::parse_result parsed = toml::parse(std::string_view(*text), std::string_view(name));
  if (!parsed) {
    const auto& error = parsed.error();
    return fail(Error::format(Code::config, "%s:%u: %s", name.c_str(), static_cast<unsigned>(error.source().begin.line),
                              shown(error.description(), 180).c_str()));
  }
  return std::move(parsed).table();
}

}  // namespace

Status apply_file(Configuration& configuration, const std::string& path) {
  const auto table = parse_file(path);
  return table ? apply_table(configuration, shown(path, most_of_a_path), *table) : fail(table.error());
}

Result<std::map<std::string, unsigned>> key_lines(const std::string& path) {
  const auto table = parse_file(path);
  if (!table) return fail(table.error());
  Lists ignored;
  std::map<std::string, unsigned> lines;
  for (const auto& entry : entries_of(*table, ignored)) {
    if (entry.item == 0) lines.emplace(entry.key, static_cast<unsigned>(entry.line));
  }
  return lines;
}

}  // namespace lowtide
