// SPDX-License-Identifier: Apache-2.0
// What is recorded is read back.
#include <set>
#include <thread>

#include "allocator/trace/format.hpp"
#include "tests/unit/child_process.hpp"
#include "tests/unit/trace_support.hpp"

using namespace lowtide;
using namespace lowtide::trace;
using namespace lowtide::test;

namespace {

bool is_same(const Event& a, const Event& b) {
  return a.op == b.op && a.kind == b.kind && a.device == b.device && a.flags == b.flags && a.address == b.address &&
         a.bytes == b.bytes && a.value == b.value && a.name == b.name && a.stack == b.stack;
}

Event full_event(Recorder& recorder) {
  auto event = alloc(0x7f00'0000'0000, 20 << 20);
  event.device = 7;
  event.flags = event_managed;
  event.value = ~std::uint64_t{0};
  event.name = recorder.intern("weights");
  const Frame frames[] = {{0x1000, {}, {}, 0}, {0x2000, {}, {}, 0}};
  event.stack = recorder.stack(frames);
  return event;
}

}  // namespace

TEST_CASE("an event is read back with all that it had, while its process still records") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  const auto event = full_event(*recorder);
  recorder->record(event);
  auto reader = open_traces({folder.path()});
  const auto events = events_of(reader);
  REQUIRE(events.size() == 1);
  CHECK(is_same(events[0].event, event));
  CHECK(events[0].process == 0);
  CHECK(events[0].thread == static_cast<std::uint32_t>(::gettid()));
  CHECK(reader.text(0, event.name) == "weights");
  CHECK(reader.damage().empty());
}

TEST_CASE("a result is read back with its sign and what moved in its three parts") {
  Event event;
  event.kind = kind_of(Code::host_budget);
  CHECK(result_of(event) == static_cast<int>(Code::host_budget));
  CHECK(result_of(Event{}) == 0);
  set_moved(event, {1_MiB, 2_MiB, 3_MiB});
  CHECK(moved(event).parked == 1_MiB);
  CHECK(moved(event).kept == 2_MiB);
  CHECK(moved(event).discarded == 3_MiB);
}

TEST_CASE("a trace says whose it is") {
  const TraceFolder folder;
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  const auto recorder = start(folder.settings());
  recorder->record(alloc(1, 2));
  const auto after = std::chrono::system_clock::now().time_since_epoch();
  auto reader = open_traces({folder.path()});
  const auto& process = reader.processes()[0];
  CHECK(process.pid == static_cast<std::uint32_t>(::getpid()));
  CHECK(process.start_ticks > 0);
  CHECK(process.version == "1.2.3");
  CHECK(process.build_id == "build");
  CHECK(process.command.find("trace_test") != std::string::npos);
  CHECK_FALSE(process.host.empty());
  const auto time = std::chrono::nanoseconds(events_of(reader)[0].time);
  constexpr std::chrono::milliseconds step{50};  // of the system's clock, should somebody set it meanwhile
  CHECK(time > before - step);
  CHECK(time < after + step);
}

TEST_CASE("a stack is stored once, and stacks with the same callers share them") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  const auto function = recorder->intern("forward");
  const auto file = recorder->intern("model.py");
  const Frame first[] = {{0x30, {}, {}, 0}, {0, function, file, 12}, {0x10, {}, {}, 0}};
  const Frame second[] = {{0x31, {}, {}, 0}, {0, function, file, 12}, {0x10, {}, {}, 0}};
  const auto one = recorder->stack(first);
  CHECK(recorder->stack(first) == one);
  const auto two = recorder->stack(second);
  CHECK(static_cast<unsigned>(two) == static_cast<unsigned>(one) + 1);  // one node more
  CHECK(recorder->stack({}) == StackId{});
  const auto reader = open_traces({folder.path()});
  const auto frames = reader.stack(0, one);
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].address == 0x30);
  CHECK(frames[1].function == "forward");
  CHECK(frames[1].file == "model.py");
  CHECK(frames[1].line == 12);
  CHECK(frames[2].address == 0x10);
  CHECK(reader.stack(0, StackId{99}).empty());
  CHECK(reader.text(0, StringId{99}).empty());
  CHECK(reader.text(1, function).empty());
}

TEST_CASE("modules and devices are told with their names, a device as it was told last") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  recorder->module({0x1000, 0x2000, 0x40, "/lib/libx.so", "abcd"});
  recorder->module({0x3000, 0x4000, 0, "/lib/liby.so", ""});
  recorder->device({DeviceId{1}, 80_GiB, "GPU-1", "H100"});
  recorder->device({DeviceId{1}, 141_GiB, "GPU-1", "H200"});
  const auto reader = open_traces({folder.path()});
  const auto modules = reader.modules(0);
  REQUIRE(modules.size() == 2);
  CHECK(modules[0].path == "/lib/libx.so");
  CHECK(modules[0].build_id == "abcd");
  CHECK(modules[0].offset == 0x40);
  CHECK(modules[1].build_id.empty());
  const auto devices = reader.devices(0);
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].ordinal == 1);
  CHECK(devices[0].total == 141_GiB);
  CHECK(devices[0].name == "H200");
  CHECK(devices[0].uuid == "GPU-1");
}

TEST_CASE("a long string is cut and an empty one is none") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  const auto id = recorder->intern(std::string(longest_string + 5, 'x'));
  CHECK(recorder->intern("") == StringId{});
  const auto reader = open_traces({folder.path()});
  CHECK(reader.text(0, id) == std::string(longest_string, 'x'));
}

TEST_CASE("events of one call have one time and stay together") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  std::vector<Event> sample(3);
  sample[0].op = Op::sample_device;
  sample[1].op = Op::sample_tag;
  sample[2].op = Op::sample_others;
  recorder->record(sample);
  auto reader = open_traces({folder.path()});
  const auto events = events_of(reader);
  REQUIRE(events.size() == 3);
  CHECK(events[0].event.op == Op::sample_device);
  CHECK(events[2].event.op == Op::sample_others);
  CHECK(events[0].time == events[2].time);
}

TEST_CASE("the files of several processes are one trace in the order of time, each with its own dictionary") {
  const TraceFolder folder;
  auto settings = folder.settings(1_MiB, "%p.ltt");
  const auto recorder = start(settings);
  const auto ours = recorder->intern("ours");
  const Child child([&](const Child::Line& line) {
    const auto own = Recorder::start(settings, "", "");
    const auto name = own ? (*own)->intern("theirs") : StringId{};
    line.say(own && name == ours ? 'y' : 'n');  // the same number, and another text
    for (std::uint64_t i = 0; i < 3; ++i) {
      line.wait();
      (*own)->record(alloc(1, i));
      line.say('r');
    }
  });
  REQUIRE(child.hear() == 'y');
  for (std::uint64_t i = 0; i < 3; ++i) {
    recorder->record(alloc(0, i));
    child.tell();
    REQUIRE(child.hear() == 'r');
  }
  auto reader = open_traces({recorder->path(), folder.path(std::to_string(child.pid()) + ".ltt")});
  const auto events = events_of(reader);
  REQUIRE(events.size() == 6);
  for (std::size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].process == i % 2);
    CHECK(events[i].event.bytes == i / 2);
  }
  CHECK(reader.text(0, ours) == "ours");
  CHECK(reader.text(1, ours) == "theirs");
  CHECK(reader.processes()[1].pid == static_cast<std::uint32_t>(child.pid()));
}

TEST_CASE("64 threads lose no event, and each of them keeps its order") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings(64_MiB));
  constexpr std::uint64_t threads = 64;
  constexpr std::uint64_t each = 3000;  // more than two chunks
  std::vector<std::thread> all;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < each; ++i) recorder->record(alloc(thread, i));
    });
  }
  for (auto& thread : all) thread.join();
  auto reader = open_traces({folder.path()});
  std::vector<std::uint64_t> next(threads);
  std::int64_t time = 0;
  std::uint64_t out_of_order = 0;
  for (const auto& [event, when, process, thread] : events_of(reader)) {
    if (event.bytes != next.at(event.address)++ || when < time) ++out_of_order;
    time = when;
  }
  CHECK(out_of_order == 0);
  CHECK(next == std::vector<std::uint64_t>(threads, each));
  CHECK(recorder->counts().dropped == 0);
  CHECK(reader.damage().empty());
}

TEST_CASE("ten thousand short threads share a chunk") {
  const TraceFolder folder;
  const auto recorder = start(folder.settings());
  constexpr int threads = 10'000;  // 1 MiB has 15 chunks
  std::set<std::uint32_t> ids;
  for (int i = 0; i < threads / 100; ++i) {
    for (int j = 0; j < 100; ++j) std::thread([&] { recorder->record(alloc(1, 2)); }).join();
  }
  auto reader = open_traces({folder.path()});
  const auto events = events_of(reader);
  CHECK(events.size() == threads);
  for (const auto& event : events) ids.insert(event.thread);
  CHECK(ids.size() > 100);
  CHECK(recorder->counts().overwritten == 0);
}
