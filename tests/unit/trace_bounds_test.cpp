// SPDX-License-Identifier: Apache-2.0
// A trace keeps to its size, to its disk and to its process.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <latch>
#include <thread>

#include "allocator/trace/format.hpp"
#include "tests/unit/child_process.hpp"
#include "tests/unit/trace_support.hpp"

using namespace lowtide;
using namespace lowtide::trace;
using namespace lowtide::test;

namespace {

void record_numbers(Recorder& recorder, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) recorder.record(alloc(0, i));
}

/// Whether the events that are there are the last ones, without a gap, and how many are missing is known.
void check_latest(const std::string& path, std::uint64_t count) {
  auto reader = open_traces({path});
  const auto events = events_of(reader);
  REQUIRE_FALSE(events.empty());
  std::uint64_t number = count - events.size();
  for (const auto& event : events) {
    if (event.event.bytes != number++) FAIL("event " << event.event.bytes << " instead of " << number - 1);
  }
  CHECK(reader.processes()[0].overwritten == count - events.size());
  CHECK(reader.processes()[0].dropped == 0);
  CHECK(reader.damage().empty());
}

/// A child that tells a letter for each thing that holds.
std::string letters_of(const Child& child) {
  std::string letters;
  while (const char letter = child.hear()) letters += letter;
  return letters;
}

}  // namespace

TEST_CASE("a trace at its size keeps the latest events and says how many are gone") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings(1_MiB));
  constexpr std::uint64_t count = 100'000;
  record_numbers(*recorder, count);
  check_latest(folder.path(), count);
  CHECK(std::filesystem::file_size(folder.path()) <= (1_MiB).value);
}

TEST_CASE("the ring never takes the dictionary, nor the chunk of a thread that rests") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings(1_MiB));
  std::latch recorded(1);
  std::latch done(1);
  std::thread rests([&] {
    recorder->record(alloc(1, 1));
    recorded.count_down();
    done.wait();
  });
  recorded.wait();
  const auto name = recorder->intern("weights");
  record_numbers(*recorder, 100'000);
  done.count_down();
  rests.join();
  auto reader = open_traces({folder.path()});
  CHECK(reader.text(0, name) == "weights");
  const auto events = events_of(reader);
  REQUIRE_FALSE(events.empty());
  CHECK(events[0].event.address == 1);
}

TEST_CASE("a full dictionary gives no ids, counts, and leaves room for events") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings(1_MiB));
  const auto first = recorder->intern("first");
  StringId last{1};
  for (int i = 0; i < 1000 && last != StringId{}; ++i)
    last = recorder->intern(std::to_string(i) + std::string(1000, 'x'));
  CHECK(last == StringId{});
  CHECK(recorder->counts().dropped_entries > 0);
  const Frame frame[] = {{0x1, {}, {}, 0}};
  std::uint64_t address = 0;
  while (recorder->stack(frame) != StackId{} && address < 100'000) {
    const Frame other[] = {{++address, {}, {}, 0}};
    if (recorder->stack(other) == StackId{}) break;
  }
  CHECK(address < 100'000);
  record_numbers(*recorder, 2000);
  auto reader = open_traces({folder.path()});
  CHECK(events_of(reader).size() == 2000);
  CHECK(reader.text(0, first) == "first");
}

TEST_CASE("more threads than chunks lose events and say how many") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings(1_MiB));
  constexpr int threads = 30;  // for 15 chunks
  std::latch all_recorded(threads);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      recorder->record(alloc(0, 0));
      all_recorded.arrive_and_wait();  // each keeps its chunk
    });
  }
  for (auto& thread : all) thread.join();
  auto reader = open_traces({folder.path()});
  const auto kept = events_of(reader).size();
  CHECK(kept == 15);
  CHECK(recorder->counts().dropped == threads - kept);
}

TEST_CASE("where the files of a process may not grow, a trace keeps the latest events and ends nobody by a signal") {
  const TraceFolder folder;
  const Child child([&](const Child::Line& line) {
    const rlimit limit{3 << 20, 3 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto recorder = Recorder::start(folder.settings(64_MiB), "", "");
    if (!recorder) ::_exit(2);
    record_numbers(**recorder, 200'000);
    line.say('y');
  });
  CHECK(letters_of(child) == "y");
  CHECK(std::filesystem::file_size(folder.path()) <= 3 << 20);
  check_latest(folder.path(), 200'000);
  CHECK(open_traces({folder.path()}).processes()[0].full_errno == EFBIG);
}

TEST_CASE("no room at all is an error that says how much was needed, and leaves no file") {
  const TraceFolder folder;
  const Child child([&](const Child::Line& line) {
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto recorder = Recorder::start(folder.settings(64_MiB), "", "");
    line.say(recorder ? 'n' : 'y');
    if (!recorder && std::string(recorder.error().message()).find("260 KiB") != std::string::npos) line.say('y');
  });
  CHECK(letters_of(child) == "yy");
  CHECK_FALSE(std::filesystem::exists(folder.path()));
}

TEST_CASE("a host that closes the trace's descriptor keeps its own files as they are") {
  const TraceFolder folder;
  const Child child([&](const Child::Line& line) {
    const int next = ::dup(0);
    ::close(next);
    const auto recorder = Recorder::start(folder.settings(64_MiB), "", "");
    if (!recorder) ::_exit(2);
    ::close(next);
    const int own = ::open(folder.path("own").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    line.say(own == next ? 'y' : 'n');
    record_numbers(**recorder, 200'000);
    line.say('y');
  });
  CHECK(letters_of(child) == "yy");
  CHECK(std::filesystem::file_size(folder.path("own")) == 0);
  check_latest(folder.path(), 200'000);
}

TEST_CASE("a fork child does not write into its parent's trace, and locks nothing") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings(1_MiB));
  recorder->record(alloc(1, 1));
  std::atomic<bool> over{false};
  // It holds the dictionary's lock much of the time.
  std::thread busy([&] {
    for (std::uint64_t i = 0; !over; ++i) {
      const Frame frame[] = {{i, {}, {}, 0}};
      (void)recorder->stack(frame);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const Child child([&](const Child::Line& line) {
      recorder->record(alloc(2, 2));
      line.say(recorder->intern("child's") == StringId{} ? 'y' : 'n');
      const Frame frame[] = {{1, {}, {}, 0}};
      line.say(recorder->stack(frame) == StackId{} ? 'y' : 'n');
      recorder->module({});
      recorder->device({});
      line.say('y');
    });
    CHECK(letters_of(child) == "yyy");
  }
  over = true;
  busy.join();
  recorder->record(alloc(4, 4));
  auto reader = open_traces({folder.path()});
  const auto events = events_of(reader);
  REQUIRE(events.size() == 2);
  CHECK(events[1].event.address == 4);
}

TEST_CASE("the path of another process that records is refused, with its number") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  recorder->record(alloc(1, 1));
  const Child child([&](const Child::Line& line) {
    const auto other = Recorder::start(folder.settings(), "", "");
    const bool told = !other && other.error().code() == Code::busy &&
                      std::string(other.error().message()).find(std::to_string(::getppid())) != std::string::npos;
    line.say(told ? 'y' : 'n');
  });
  CHECK(letters_of(child) == "y");
  auto reader = open_traces({folder.path()});
  CHECK(events_of(reader).size() == 1);
}

TEST_CASE("an older trace is replaced, and nothing else") {
  const TraceFolder folder;
  start(folder.settings())->record(alloc(1, 1));
  start(folder.settings());
  auto reader = open_traces({folder.path()});
  CHECK(events_of(reader).empty());
  write_file(folder.path("model"), "weights");
  const auto refused = Recorder::start(folder.settings(1_MiB, "model"), "", "");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::config);
  CHECK(content_of(folder.path("model")) == "weights");
}

TEST_CASE("an unusable path is an error at once, and makes nothing") {
  const TraceFolder folder;
  for (const auto* name : {"missing/a.ltt", "%q.ltt", "%"}) {
    const auto refused = Recorder::start(folder.settings(1_MiB, name), "", "");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::config);
  }
  ::mkfifo(folder.path("pipe").c_str(), 0600);
  CHECK_FALSE(Recorder::start(folder.settings(1_MiB, "pipe"), "", ""));
  CHECK_FALSE(Recorder::start(folder.settings(1_MiB, "."), "", ""));
  auto settings = folder.settings();
  settings.file = "relative.ltt";
  CHECK_FALSE(Recorder::start(settings, "", ""));
  settings = folder.settings(64_KiB);
  CHECK_FALSE(Recorder::start(settings, "", ""));
  CHECK_FALSE(std::filesystem::exists(folder.path("missing")));
}

TEST_CASE("a path has the process and the host in it") {
  const TraceFolder folder;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto recorder = start(folder.settings(1_MiB, "%h-%p-%%.ltt"));
  CHECK(recorder->path() == folder.path(std::string(host) + "-" + std::to_string(::getpid()) + "-%.ltt"));
  CHECK(std::filesystem::exists(recorder->path()));
  struct stat about {};
  ::stat(recorder->path().c_str(), &about);
  CHECK((about.st_mode & 0777) == 0600);
}
