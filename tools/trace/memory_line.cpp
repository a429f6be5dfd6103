// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/memory_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lowtide::tools {
namespace {

constexpr std::string_view allocated_mark = ", memory allocated (GB): ";
constexpr std::string_view reserved_mark = ", memory reserved (GB): ";
constexpr std::string_view device_mark = ", device memory used/total (GB): ";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// How many bytes at the begin of `text` are a colour, as in "[36m": what is left of one where a log was copied.
std::size_t copied_colour(std::string_view text) {
  const auto end = text.find_first_not_of("0123456789;", 1);
  const bool is_one = text.starts_with('[') && end != std::string_view::npos && end > 1 && text[end] == 'm';
  return is_one ? end + 1 : 0;
}

std::string without_colours(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~');) ++i;
      continue;
    }
    if (const auto colour = copied_colour(line.substr(i)); colour > 0) {
      i += colour - 1;
      continue;
    }
    if (static_cast<unsigned char>(line[i]) >= 0x20 || line[i] == '\t') plain += line[i];
  }
  return plain;
}

void strip(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
}

/// The number at the begin of `text`, as bytes; it is taken off. Nothing for what no device can have.
std::optional<Bytes> take_gigabytes(std::string_view& text) {
  constexpr double most = 1e9;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number >= 0) || number > most) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  // "1,234.50" is not 1.
  if (text.size() > 1 && text[0] == ',' && is_digit(text[1])) return std::nullopt;
  return Bytes{static_cast<std::uint64_t>(std::llround(number * static_cast<double>(1 << 30)))};
}

std::optional<Bytes> gigabytes_after(std::string_view text, std::string_view mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + mark.size());
  return take_gigabytes(text);
}

std::uint64_t number_at(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// One "key=value" of a prefix in parentheses.
void take_word(std::string_view word, MemoryLine& line) {
  strip(word);
  const auto value = word.substr(std::min(word.size(), word.find('=') + 1));
  if (word.starts_with("pid=")) line.pid = number_at(value);
  if (word.starts_with("ip=")) line.host = value;
  if (word.starts_with("device=")) line.device = static_cast<int>(std::min<std::uint64_t>(number_at(value), 1023));
}

/// "(WorkerDict pid=12, ip=10.0.0.1)", as Ray and vLLM begin their lines.
bool take_process(std::string_view& text, MemoryLine& line) {
  const auto close = text.find(')');
  if (!text.starts_with('(') || close == std::string_view::npos) return false;
  auto inside = text.substr(1, close - 1);
  if (inside.find("pid=") == std::string_view::npos) return false;
  line.process = inside.substr(0, inside.find(' '));
  inside.remove_prefix(std::min(inside.size(), line.process.size()));
  while (!inside.empty()) {
    const auto comma = std::min(inside.find(','), inside.size());
    take_word(inside.substr(0, comma), line);
    inside.remove_prefix(std::min(inside.size(), comma + 1));
  }
  text.remove_prefix(close + 1);
  strip(text);
  return true;
}

/// "[2025-08-08 07:16:51 TP0]": a bracket that begins with a digit.
bool take_bracket(std::string_view& text, MemoryLine& line) {
  const auto close = text.find(']');
  if (text.size() < 2 || text[0] != '[' || !is_digit(text[1]) || close == std::string_view::npos) return false;
  line.time = text.substr(1, close - 1);
  if (const auto rank = line.time.find(" TP"); rank != std::string::npos) {
    line.device =
        static_cast<int>(std::min<std::uint64_t>(number_at(std::string_view(line.time).substr(rank + 3)), 1023));
  }
  text.remove_prefix(close + 1);
  strip(text);
  return true;
}

/// "DEBUG:2025-06-28 18:06:41,828:", as Python's logging begins its lines.
bool take_logging(std::string_view& text, MemoryLine& line) {
  const auto level = std::min(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), text.size());
  if (level == 0 || level + 1 >= text.size() || text[level] != ':' || !is_digit(text[level + 1])) return false;
  const auto comma = text.find(',', level);
  const auto close = text.find(':', comma == std::string_view::npos ? comma : comma + 1);
  if (close == std::string_view::npos || close - level > 32) return false;
  line.time = text.substr(level + 1, close - level - 1);
  text.remove_prefix(close + 1);
  strip(text);
  return true;
}

/// "2026-09-02T20:18:43.9575040Z ", which CI puts before each line.
bool take_stamp(std::string_view& text, MemoryLine& line) {
  const auto space = text.find(' ');
  if (text.size() < 20 || !is_digit(text[0]) || text[4] != '-' || text[10] != 'T' || space > 36) return false;
  line.time = text.substr(0, space);
  text.remove_prefix(space + 1);
  strip(text);
  return true;
}

/// A level or a name, each between two marks.
void take_words_between(std::string_view& text, std::string_view mark) {
  while (text.starts_with(mark)) {
    text.remove_prefix(mark.size());
    const auto next = text.find(mark);
    auto word = text.substr(0, next);
    strip(word);
    if (next == std::string_view::npos || word.find(' ') != std::string_view::npos) return;
    text.remove_prefix(next);
  }
}

/// "2025-08-08 07:16:51,123 - INFO - " and "2025-08-08 07:16:51.123 | INFO | ", as loggers begin their lines.
bool take_date(std::string_view& text, MemoryLine& line) {
  constexpr std::size_t length = 19;
  if (text.size() <= length || !is_digit(text[0]) || text[4] != '-' || text[10] != ' ' || text[13] != ':') return false;
  const auto end = text.find(' ', length);
  if (end == std::string_view::npos) return false;
  line.time = text.substr(0, end);
  text.remove_prefix(end);
  for (const std::string_view mark : {" - ", " | "}) take_words_between(text, mark);
  strip(text);
  return true;
}

/// "INFO 02-25 19:13:26 [worker.py:133] ", with or without the first bracket, and slime's "memory_utils.py:41 - ".
bool take_source(std::string_view& text) {
  const auto at = text.find(".py:");
  if (at == std::string_view::npos) return false;
  auto end = at + 4;
  while (end < text.size() && is_digit(text[end])) ++end;
  while (end < text.size() && (text[end] == ']' || text[end] == ' ' || text[end] == '-')) ++end;
  if (at > 80) return false;
  text.remove_prefix(end);
  return true;
}

void take_repeated(std::string_view& text, MemoryLine& line) {
  constexpr std::string_view mark = "[repeated ";
  const auto at = text.rfind(mark);
  if (at == std::string_view::npos) return;
  line.repeated = number_at(text.substr(at + mark.size()));
  text = text.substr(0, at);
  strip(text);
}

bool take_verl(std::string_view text, MemoryLine& line) {
  const auto at = text.find(allocated_mark);
  if (at == std::string_view::npos) return false;
  line.label = text.substr(0, at);
  line.allocated = gigabytes_after(text.substr(at), allocated_mark);
  line.reserved = gigabytes_after(text.substr(at), reserved_mark);
  if (const auto device = text.find(device_mark, at); device != std::string_view::npos) {
    auto rest = text.substr(device + device_mark.size());
    line.used = take_gigabytes(rest);
    if (!line.used || !rest.starts_with('/')) return false;
    rest.remove_prefix(1);
    line.total = take_gigabytes(rest);
    if (!line.total) return false;
  }
  return line.allocated && line.reserved;
}

/// "Load weight end. elapsed=19.09 s, avail mem=230.20 GB, mem usage=56.98 GB."
bool take_sglang(std::string_view text, MemoryLine& line) {
  line.available = gigabytes_after(text, "avail mem=");
  line.allocated = gigabytes_after(text, "mem usage=");
  const auto stop = text.find(". ");
  if ((!line.available && !line.allocated) || stop == std::string_view::npos || stop > 80) return false;
  line.label = text.substr(0, stop);
  return true;
}

/// "Sleep mode freed 0.00 GiB memory, 63.15 GiB memory is still in use."
bool take_vllm(std::string_view text, MemoryLine& line) {
  constexpr std::string_view begin = "Sleep mode freed ";
  constexpr std::string_view middle = " GiB memory, ";
  if (!text.starts_with(begin)) return false;
  line.label = "Sleep mode";
  line.used = gigabytes_after(text, middle);
  return line.used.has_value();
}

/// "[Rank 7] Memory-Usage after update_weights: {'gpu': '7', 'total_GB': 178.35, 'free_GB': 95.91, 'used_GB': 82.44,
/// ..."
bool take_slime(std::string_view text, MemoryLine& line) {
  constexpr std::string_view mark = "Memory-Usage ";
  const auto at = text.find(mark);
  const auto brace = text.find(": {'gpu': '", at == std::string_view::npos ? at : at + mark.size());
  if (brace == std::string_view::npos) return false;
  line.label = text.substr(at + mark.size(), brace - at - mark.size());
  line.device = static_cast<int>(std::min<std::uint64_t>(number_at(text.substr(brace + 11)), 1023));
  line.used = gigabytes_after(text, "'used_GB': ");
  line.total = gigabytes_after(text, "'total_GB': ");
  line.allocated = gigabytes_after(text, "'allocated_GB': ");
  line.reserved = gigabytes_after(text, "'reserved_GB': ");
  return line.used && line.total;
}

}  // namespace

std::optional<MemoryLine> parse_memory_line(std::string_view raw) {
  const auto plain = without_colours(raw);
  std::string_view text = plain;
  strip(text);
  MemoryLine line;
  while (take_stamp(text, line) || take_bracket(text, line) || take_process(text, line) || take_logging(text, line) ||
         take_date(text, line)) {
  }
  take_source(text);
  take_repeated(text, line);
  if (!take_verl(text, line) && !take_slime(text, line) && !take_vllm(text, line) && !take_sglang(text, line)) {
    return std::nullopt;
  }
  if (line.label.empty()) return std::nullopt;
  return line;
}

std::string memory_line_text(std::string_view label, Bytes allocated, Bytes reserved, Bytes used, Bytes total) {
  const auto gigabytes = [](Bytes bytes) { return static_cast<double>(bytes.value) / static_cast<double>(1 << 30); };
  return fmt::format("{}{}{:.2f}{}{:.2f}{}{:.2f}/{:.2f}", label, allocated_mark, gigabytes(allocated), reserved_mark,
                     gigabytes(reserved), device_mark, gigabytes(used), gigabytes(total));
}

}  // namespace lowtide::tools
