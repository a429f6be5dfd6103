// SPDX-License-Identifier: Apache-2.0
// A process that records is killed at whatever instruction it is: its file has every event that it had finished, whole,
// and nothing else. 100 processes, LOWTIDE_TEST_LONG=1: 1,000. LOWTIDE_TEST_SEED=N: other moments.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "allocator/trace/format.hpp"
#include "tests/unit/child_process.hpp"
#include "tests/unit/trace_support.hpp"

namespace lowtide::test {
namespace {

using namespace trace;

constexpr std::size_t threads = 3;

/// How many events each thread of the child has finished, in memory that outlives it.
struct Finished {
  std::array<std::atomic<std::uint64_t>, threads> events;
};

Finished& shared_finished() {
  void* const memory = ::mmap(nullptr, sizeof(Finished), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return *new (memory) Finished{};
}

std::uint64_t check_of(std::uint64_t thread, std::uint64_t number) {
  return (thread << 32 | number) * 0x9e3779b97f4a7c15;
}
std::string name_of(std::uint64_t number) { return "name-" + std::to_string(number / 64); }

void record_until_killed(Recorder& recorder, Finished& finished, std::uint64_t thread) {
  for (std::uint64_t number = 1;; ++number) {
    auto event = alloc(thread, number);
    event.value = check_of(thread, number);
    event.name = recorder.intern(name_of(number % 20'000));
    const Frame frames[] = {{number / 64 % 300, {}, {}, 0}, {thread + 1, {}, {}, 0}};
    event.stack = recorder.stack(frames);
    recorder.record(event);
    finished.events[thread].store(number, std::memory_order_release);
  }
}

/// One process's life, up to `moment` after its first event.
void run_and_kill(const TraceSettings& settings, Finished& finished, std::chrono::microseconds moment) {
  Child child([&](const Child::Line& line) {
    const auto recorder = Recorder::start(settings, "", "");
    if (!recorder) ::_exit(2);
    line.say('r');
    std::vector<std::thread> all;
    for (std::uint64_t thread = 0; thread < threads; ++thread)
      all.emplace_back([&, thread] { record_until_killed(**recorder, finished, thread); });
    for (auto& thread : all) thread.join();
  });
  REQUIRE(child.hear() == 'r');
  std::this_thread::sleep_for(moment);
  child.kill();
}

/// What a file has of each thread.
struct Found {
  std::array<std::uint64_t, threads> first{};
  std::array<std::uint64_t, threads> last{};
  std::uint64_t wrong = 0;  ///< events that are not whole, or out of order, or name what is not there
  std::uint64_t count = 0;
};

Found read_all(Reader& reader) {
  Found found;
  reader.for_each([&](const TraceEvent& each) {
    const auto& event = each.event;
    const auto thread = event.address;
    ++found.count;
    if (thread >= threads || event.value != check_of(thread, event.bytes)) return void(++found.wrong);
    auto& last = found.last[thread];
    if (last == 0) found.first[thread] = event.bytes;
    const bool follows = last == 0 || event.bytes == last + 1;
    const bool named = reader.text(0, event.name) == name_of(event.bytes % 20'000);
    const auto stack = reader.stack(0, event.stack);
    const bool stacked = stack.size() == 2 && stack[1].address == thread + 1;
    if (!follows || !named || !stacked) ++found.wrong;
    last = event.bytes;
  });
  return found;
}

void check_file(const TraceSettings& settings, const Finished& finished) {
  auto reader = open_traces({settings.file});
  const auto found = read_all(reader);
  CHECK(found.wrong == 0);
  CHECK(reader.damage().empty());
  const auto& process = reader.processes()[0];
  CHECK(process.dropped == 0);
  std::uint64_t finished_or_read = 0;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    const auto done = finished.events[thread].load();
    INFO("thread " << thread << " finished " << done << ", and " << found.last[thread] << " is read");
    // A thread that was at rest between two chunks may have seen the ring go over all that it had.
    const bool all_gone = found.last[thread] == 0 && process.overwritten > 0;
    CHECK((found.last[thread] >= done || all_gone));
    CHECK(found.last[thread] <= done + 1);
    CHECK((found.first[thread] <= 1 || process.overwritten > 0));
    finished_or_read += std::max(found.last[thread], done);
  }
  // Each thread may be killed between the count of what its next chunk held and its loss.
  const auto missing = finished_or_read - found.count;
  CHECK(process.overwritten >= missing);
  CHECK(process.overwritten <= missing + threads * events_per_chunk);
}

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("a process that is killed while it records leaves every event that it had finished") {
  const std::uint64_t runs = std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 1000 : 100;
  const auto seed = number_of("LOWTIDE_TEST_SEED", 1);
  std::printf("LOWTIDE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const TraceFolder folder;
  for (std::uint64_t run = 0; run < runs; ++run) {
    INFO("run " << run);
    // A small file is a ring all the time, a large one grows all the time.
    const auto settings = folder.settings(run % 2 == 0 ? 1_MiB : 256_MiB);
    auto& finished = shared_finished();
    run_and_kill(settings, finished, std::chrono::microseconds(random() % (random() % 4 == 0 ? 40'000 : 4'000)));
    check_file(settings, finished);
    ::munmap(&finished, sizeof finished);
  }
}

}  // namespace lowtide::test
