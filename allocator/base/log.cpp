// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace lowtide {
namespace {

constexpr int most_warnings = 16;

// The only state of the base layer: what may be printed, and how much was.
std::atomic<LogLevel> level_in_force{LogLevel::warning};
std::atomic<int> warnings_printed{0};

bool admit(LogLevel level) noexcept {
  if (level > level_in_force.load(std::memory_order_relaxed)) return false;
  if (level > LogLevel::warning) return true;
  return warnings_printed.fetch_add(1, std::memory_order_relaxed) <= most_warnings;
}

}  // namespace

void set_log_level(LogLevel level) noexcept { level_in_force.store(level, std::memory_order_relaxed); }

void log(LogLevel level, const char* format, ...) noexcept {
  if (!admit(level)) return;
  const int errno_of_the_host = errno;
  std::array<char, 512> line{};
  const int head = std::snprintf(line.data(), line.size(), "lowtide[%d]: ", static_cast<int>(::getpid()));
  const auto room = line.size() - static_cast<std::size_t>(head);
  std::size_t length = 0;
  if (level <= LogLevel::warning && warnings_printed.load(std::memory_order_relaxed) > most_warnings) {
    length = static_cast<std::size_t>(std::snprintf(line.data() + head, room, "further warnings are left out"));
  } else {
    va_list arguments;
    va_start(arguments, format);
    length = static_cast<std::size_t>(std::max(0, std::vsnprintf(line.data() + head, room, format, arguments)));
    va_end(arguments);
  }
  const auto end = std::min(static_cast<std::size_t>(head) + length, line.size() - 1);
  line[end] = '\n';
  // A host whose stderr is closed loses the line and nothing else.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), end + 1);
  errno = errno_of_the_host;
}

}  // namespace lowtide
