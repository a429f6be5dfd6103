// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/words.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>

namespace lowtide {
namespace {

// Edit distance in which two swapped neighbours count as one: the commonest slip of the fingers.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t differs = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + differs});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::optional<std::int64_t> milliseconds_in(std::string_view unit) noexcept {
  if (unit == "ms") return 1;
  if (unit == "s") return 1000;
  if (unit == "m") return 60'000;
  return std::nullopt;
}

std::optional<std::uint64_t> bytes_in(std::string_view unit) noexcept {
  if (unit == "B") return 1;
  if (unit == "KiB") return std::uint64_t{1} << 10;
  if (unit == "MiB") return std::uint64_t{1} << 20;
  if (unit == "GiB") return std::uint64_t{1} << 30;
  if (unit == "TiB") return std::uint64_t{1} << 40;
  return std::nullopt;
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) noexcept {
  constexpr std::int64_t a_year = std::int64_t{366} * 24 * 3600 * 1000;
  std::int64_t amount = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc{} || amount < 0) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit.empty() && amount == 0) return std::chrono::milliseconds{0};
  const auto factor = milliseconds_in(unit);
  if (!factor || amount > a_year / *factor) return std::nullopt;
  return std::chrono::milliseconds{amount * *factor};
}

std::optional<Bytes> parse_size(std::string_view text) noexcept {
  constexpr std::uint64_t too_much = std::uint64_t{1} << 60;
  std::uint64_t amount = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit.empty() && amount == 0) return Bytes{0};
  const auto factor = bytes_in(unit);
  if (!factor || amount >= too_much / *factor) return std::nullopt;
  return Bytes{amount * *factor};
}

std::string_view nearest(std::string_view text, std::span<const std::string_view> candidates) {
  constexpr std::size_t longest_worth_comparing = 128;
  if (text.size() > longest_worth_comparing) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, text.size() / 3) + 1;
  for (const auto candidate : candidates) {
    const auto d = distance(text, candidate);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view text, std::span<const std::string_view> candidates) {
  const auto word = nearest(text, candidates);
  return word.empty() ? "" : "; did you mean " + std::string(word) + "?";
}

std::string shown(std::string_view text, std::size_t most) {
  std::string line(text);
  if (line.size() > most) {
    const auto half = (most - 3) / 2;
    line = line.substr(0, half) + "..." + line.substr(line.size() - half);
  }
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return line;
}

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace lowtide
