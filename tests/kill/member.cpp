// SPDX-License-Identifier: Apache-2.0
// kill_member work SEED: holds tagged memory and works on it all the time; answers each line on stdin with "ok USED
// FDS" (device bytes, open descriptors) if every byte is what it was left as, else with what is wrong. kill_member fill
// BYTES: takes plain device memory and sits on it.
#include <dirent.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>

#include "tests/hazards/program.hpp"

using namespace hazards;

namespace {

constexpr const char* tags[] = {"weights", "lora", "kv_cache", "scratch"};

struct Holding {
  std::string tag;
  CUdeviceptr address = 0;
  std::vector<std::uint8_t> content;
};

class Member {
 public:
  explicit Member(std::uint64_t seed) : random_(seed) {
    use_device();
    kernels_ = std::make_unique<Kernels>();
    stream_ = std::make_unique<Stream>();
    for (const char* const tag : tags) {
      for (std::uint64_t blocks = 1 + below(2); blocks > 0; --blocks) allocate(tag);
    }
  }

  void work() {
    auto& holding = holdings_[below(holdings_.size())];
    switch (below(4)) {
      case 0: write(holding); break;
      case 1: fill_slowly(holding); break;
      default: check(holding);
    }
  }

  void check() const {
    for (const auto& holding : holdings_) check(holding);
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void allocate(const char* tag) {
    const auto size = below(3) == 0 ? 1 + below(3 * mib) : 1 + below(200 * kib);
    Holding holding{tag, 0, std::vector<std::uint8_t>(size)};
    const Scope scope(tag);
    must(cuMemAlloc(&holding.address, size));
    write(holding);
    holdings_.push_back(std::move(holding));
  }

  void write(Holding& holding) {
    std::generate(holding.content.begin(), holding.content.end(),
                  [this] { return static_cast<std::uint8_t>(random_()); });
    must(cuMemcpyHtoD(holding.address, holding.content.data(), holding.content.size()));
  }

  void fill_slowly(Holding& holding) {
    const auto value = static_cast<std::uint8_t>(random_());
    kernels_->fill_slowly(holding.address, holding.content.size(), value, 2, *stream_);
    must(cuStreamSynchronize(*stream_));
    holding.content.assign(holding.content.size(), value);
  }

  // What is dropped at a pause holds zeros after it: the family's configuration says so.
  static void check(const Holding& holding) {
    std::vector<std::uint8_t> now(holding.content.size());
    must(cuMemcpyDtoH(now.data(), holding.address, now.size()));
    if (now == holding.content) return;
    const bool dropped = std::all_of(now.begin(), now.end(), [](std::uint8_t byte) { return byte == 0; });
    must(holding.tag == "kv_cache" && dropped, ("a block of " + holding.tag + " holds other bytes").c_str());
  }

  std::mt19937_64 random_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  std::vector<Holding> holdings_;
};

std::size_t count_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  std::size_t count = 0;
  while (folder != nullptr && ::readdir(folder.get()) != nullptr) ++count;
  return count;
}

void say(const std::string& line) { std::cout << line << std::endl; }

bool is_spoken_to() {
  constexpr int pause_between_work_ms = 2;
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return ::poll(&in, 1, pause_between_work_ms) > 0;
}

int work(std::uint64_t seed) {
  Member member(seed);
  say("ready");
  for (std::string line;;) {
    if (!is_spoken_to()) {
      member.work();
      continue;
    }
    if (!std::getline(std::cin, line)) return 0;
    member.check();
    say("ok " + std::to_string(used_bytes()) + ' ' + std::to_string(count_descriptors()));
  }
}

int fill(std::size_t bytes) {
  use_device();
  CUdeviceptr address = 0;
  must(cuMemAlloc(&address, bytes));
  say("ready");
  for (std::string line; std::getline(std::cin, line);) say("ok");
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    if (count != 3) return 2;
    const auto number = std::stoull(values[2]);
    return std::string(values[1]) == "fill" ? fill(number) : work(number);
  } catch (const std::exception& error) {
    say(error.what());
    return 1;
  }
}
