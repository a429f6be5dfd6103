// SPDX-License-Identifier: Apache-2.0
// Threads record random events, alone and several at once, with names and stacks, come and go; a plain list of each
// thread says what has to be read. LOWTIDE_TEST_SEED=N: other choices.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "tests/sanitized.hpp"
#include "tests/unit/trace_support.hpp"

using namespace lowtide;
using namespace lowtide::trace;
using namespace lowtide::test;

namespace {

struct Expected {
  Event event;
  std::string name;
  std::vector<std::uint64_t> frames;
};
using History = std::vector<Expected>;

/// One thread's life. Its events have its number in `value`.
class Writer {
 public:
  Writer(Recorder& recorder, std::uint64_t number, std::uint64_t seed)
      : recorder_(recorder), number_(number), random_(seed) {}

  void run(int calls) {
    for (int i = 0; i < calls; ++i) {
      std::vector<Event> events;
      for (auto count = 1 + random_() % (random_() % 8 == 0 ? 40 : 1); count > 0; --count) events.push_back(next());
      if (events.size() == 1)
        recorder_.record(events[0]);
      else
        recorder_.record(events);
    }
  }
  const History& history() const { return history_; }

 private:
  Event next() {
    constexpr std::array ops{Op::alloc, Op::free, Op::copy, Op::phase, Op::sample_tag, Op::pause_end, Op::shutdown};
    Expected expected;
    auto& event = expected.event;
    event.op = ops[random_() % ops.size()];
    event.kind = static_cast<std::uint8_t>(random_());
    event.device = static_cast<std::int8_t>(random_() % 9) - 1;
    event.flags = static_cast<std::uint8_t>(random_());
    event.address = random_();
    event.bytes = random_() >> random_() % 64;
    event.value = number_;
    if (random_() % 2 == 0) {
      expected.name = "tag" + std::to_string(random_() % 200);
      event.name = recorder_.intern(expected.name);
    }
    if (random_() % 4 == 0) {
      std::vector<Frame> frames;
      for (auto depth = random_() % 6; depth > 0; --depth) {
        expected.frames.push_back(1 + random_() % 5);
        frames.push_back({expected.frames.back(), {}, {}, 0});
      }
      event.stack = recorder_.stack(frames);
    }
    history_.push_back(expected);
    return event;
  }

  Recorder& recorder_;
  const std::uint64_t number_;
  std::mt19937_64 random_;
  History history_;
};

bool is_as_expected(const Reader& reader, const Event& event, const Expected& expected) {
  const auto& wanted = expected.event;
  std::vector<std::uint64_t> frames;
  for (const auto& frame : reader.stack(0, event.stack)) frames.push_back(frame.address);
  return event.op == wanted.op && event.kind == wanted.kind && event.device == wanted.device &&
         event.flags == wanted.flags && event.address == wanted.address && event.bytes == wanted.bytes &&
         reader.text(0, event.name) == expected.name && frames == expected.frames;
}

/// What is read of each thread, and how much of its history that must be the end of.
void check(const std::string& path, const std::vector<const History*>& histories) {
  auto reader = open_traces({path});
  std::map<std::uint64_t, std::vector<Event>> found;
  std::int64_t time = INT64_MIN;
  std::uint64_t count = 0;
  bool in_order = true;
  reader.for_each([&](const TraceEvent& event) {
    found[event.event.value].push_back(event.event);
    in_order = in_order && event.time >= time;
    time = event.time;
    ++count;
  });
  CHECK(in_order);
  CHECK(reader.damage().empty());
  std::uint64_t recorded = 0;
  for (std::size_t thread = 0; thread < histories.size(); ++thread) {
    const auto& history = *histories[thread];
    const auto& events = found[thread];
    recorded += history.size();
    REQUIRE(events.size() <= history.size());
    const auto skipped = history.size() - events.size();
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (!is_as_expected(reader, events[i], history[skipped + i]))
        FAIL("event " << i << " of " << events.size() << " of thread " << thread << " is another one");
    }
  }
  const auto& process = reader.processes()[0];
  CHECK(process.dropped == 0);
  CHECK(process.dropped_entries == 0);
  CHECK(count + process.overwritten == recorded);
}

void play(std::uint64_t seed) {
  std::printf("LOWTIDE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const TraceFolder folder;
  const auto recorder = start(folder.settings(random() % 2 == 0 ? 2_MiB : 32_MiB));
  std::vector<std::unique_ptr<Writer>> writers;
  for (auto generation = 1 + random() % 4; generation > 0; --generation) {
    std::vector<std::thread> threads;
    for (auto count = 1 + random() % 4; count > 0; --count) {
      auto& writer = writers.emplace_back(std::make_unique<Writer>(*recorder, writers.size(), random()));
      threads.emplace_back([&writer = *writer, calls = static_cast<int>(random() % 8000)] { writer.run(calls); });
    }
    for (auto& thread : threads) thread.join();
  }
  std::vector<const History*> histories;
  for (const auto& writer : writers) histories.push_back(&writer->history());
  check(folder.path(), histories);
}

}  // namespace

TEST_CASE("whatever threads record is read as they recorded it, up to what the ring says it has lost") {
  if (const char* const chosen = std::getenv("LOWTIDE_TEST_SEED")) return play(std::strtoull(chosen, nullptr, 10));
  const std::uint64_t seeds = std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 1000 : sanitized ? 10 : 100;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) play(seed);
}
