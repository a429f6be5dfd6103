// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/process_facts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "allocator/base/unique_fd.hpp"
#include "allocator/trace/format.hpp"

namespace lowtide::trace {
namespace {

std::int64_t now(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// The beginning of a small file of /proc, which ends with a zero.
template <std::size_t size>
std::size_t read_into(const char* path, std::array<char, size>& text) noexcept {
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  const auto n = fd ? ::read(fd.get(), text.data(), size - 1) : -1;
  const auto length = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  text[length] = '\0';
  return length;
}

/// Field 22 of /proc/self/stat; the name in field 2 may hold anything but ends with the last bracket.
std::uint64_t start_ticks() noexcept {
  std::array<char, 1024> text{};
  read_into("/proc/self/stat", text);
  const char* at = std::strrchr(text.data(), ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

/// The two clocks, read so close together as they can be.
void anchor(FileHeader& header) noexcept {
  constexpr int looks = 8;
  std::uint64_t best = UINT64_MAX;
  for (int i = 0; i < looks; ++i) {
    const auto before = monotonic_now();
    const auto realtime = now(CLOCK_REALTIME);
    const auto gap = monotonic_now() - before;
    if (gap >= best) continue;
    best = gap;
    header.realtime = realtime;
    header.monotonic = before + gap / 2;
  }
}

}  // namespace

std::uint64_t monotonic_now() noexcept { return static_cast<std::uint64_t>(now(CLOCK_MONOTONIC)); }

void fill_in_process(FileHeader& header) noexcept {
  header.pid = static_cast<std::uint32_t>(::getpid());
  header.start_ticks = start_ticks();
  anchor(header);
  const auto boot = read_into("/proc/sys/kernel/random/boot_id", header.boot_id);
  if (boot != 0 && header.boot_id[boot - 1] == '\n') header.boot_id[boot - 1] = '\0';
  ::gethostname(header.host.data(), header.host.size() - 1);
  const auto length = read_into("/proc/self/cmdline", header.command);
  std::replace(header.command.begin(), header.command.begin() + static_cast<std::ptrdiff_t>(length), '\0', ' ');
  if (length != 0 && header.command[length - 1] == ' ') header.command[length - 1] = '\0';
}

}  // namespace lowtide::trace
