// SPDX-License-Identifier: Apache-2.0
// bench_trace FOLDER: what recording an event costs its thread, beside the clock that each event is stamped with, with
// 1 and with several threads, and how fast a file of 10 million events is read. The best of some rounds.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "allocator/trace/reader.hpp"
#include "allocator/trace/recorder.hpp"

using namespace lowtide;
using namespace lowtide::trace;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::uint64_t events = 1'000'000;
constexpr int rounds = 5;

/// ns for each of `count` calls of `work`, in the best round.
template <class Work>
double cost(std::uint64_t count, Work work) {
  double best = 1e18;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    work();
    const std::chrono::duration<double, std::nano> time = Clock::now() - start;
    best = std::min(best, time.count() / static_cast<double>(count));
  }
  return best;
}

void read_clock() {
  timespec time{};
  for (std::uint64_t i = 0; i < events; ++i) ::clock_gettime(CLOCK_MONOTONIC, &time);
}

Event alloc(std::uint64_t number) {
  Event event;
  event.op = Op::alloc;
  event.address = number;
  event.bytes = number;
  return event;
}

void record(Recorder& recorder, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) recorder.record(alloc(i));
}

void record_by(Recorder& recorder, unsigned threads) {
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) all.emplace_back([&] { record(recorder, events); });
  for (auto& thread : all) thread.join();
}

std::unique_ptr<Recorder> start(const std::string& path, Bytes size) {
  TraceSettings settings;
  settings.file = path;
  settings.size = size;
  auto recorder = Recorder::start(settings, "bench", "");
  if (recorder) return std::move(*recorder);
  std::fprintf(stderr, "%s\n", recorder.error().message());
  return nullptr;
}

void say(const char* what, double nanoseconds, double clock) {
  std::printf("%-44s %7.1f ns   %5.2f clocks\n", what, nanoseconds, nanoseconds / clock);
}

void measure_recording(Recorder& recorder, double clock) {
  say("record, a new file", cost(events, [&] { record(recorder, events); }), clock);
  constexpr int around = 6;  // until every chunk was used
  for (int i = 0; i < around; ++i) record(recorder, events);
  say("record, a ring that has been around", cost(events, [&] { record(recorder, events); }), clock);
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  say("record, a thread for each core", cost(events, [&] { record_by(recorder, cores); }), clock);
  const auto name = recorder.intern("weights");
  bool same = true;
  say("intern a known tag",
      cost(events,
           [&] {
             for (std::uint64_t i = 0; i < events; ++i) same = recorder.intern("weights") == name && same;
           }),
      clock);
  std::vector<Frame> frames(32);
  for (std::uint64_t i = 0; i < frames.size(); ++i) frames[i].address = i;
  say("a known stack of 32 frames",
      cost(events / 10,
           [&] {
             for (std::uint64_t i = 0; i < events / 10; ++i) same = recorder.stack(frames) != StackId{} && same;
           }),
      clock);
  if (!same) std::printf("the dictionary is full\n");
}

int measure_reading(const std::string& path) {
  constexpr std::uint64_t many = 10 * events;
  // By another process, whose mapped file does not count as this one's memory.
  const pid_t writer = ::fork();
  if (writer == 0) {
    const auto recorder = start(path, 1_GiB);
    if (!recorder) ::_exit(1);
    std::thread other([&] { record(*recorder, many / 2); });
    record(*recorder, many / 2);
    other.join();
    ::_exit(0);
  }
  int status = 1;
  if (::waitpid(writer, &status, 0) != writer || status != 0) return 1;
  const auto begin = Clock::now();
  auto reader = Reader::open(std::vector<std::string>{path});
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  if (reader) reader->for_each([&](const TraceEvent& event) { ++count, sum += event.event.bytes; });
  const std::chrono::duration<double> time = Clock::now() - begin;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%llu events are read in %.2f s (their sum is %llu); the process never had more than %ld MiB\n",
              static_cast<unsigned long long>(count), time.count(), static_cast<unsigned long long>(sum),
              usage.ru_maxrss / 1024);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = std::string(argc > 1 ? argv[1] : "/tmp") + "/bench_trace.ltt";
  if (measure_reading(path) != 0) return 1;
  const double clock = cost(events, read_clock);
  say("clock_gettime", clock, clock);
  {
    const auto recorder = start(path, 256_MiB);
    if (!recorder) return 1;
    measure_recording(*recorder, clock);
  }
  std::remove(path.c_str());
}
