// SPDX-License-Identifier: Apache-2.0
// A file that was made byte by byte from docs/trace-format.md, not by the recorder: version 1 stays readable.
#include "tests/unit/trace_support.hpp"

using namespace lowtide;
using namespace lowtide::trace;

namespace {

const std::string path = LOWTIDE_SOURCE_DIR "/tests/fuzz/corpus/trace/version-1.ltt";

}  // namespace

TEST_CASE("a header of version 1 says whose trace it is") {
  const auto reader = test::open_traces({path});
  const auto& process = reader.processes()[0];
  CHECK(process.pid == 4242);
  CHECK(process.start_ticks == 12345);
  CHECK(process.host == "host");
  CHECK(process.command == "python train.py --steps 4");
  CHECK(process.version == "0.1.0");
  CHECK(process.build_id == "0.1.0-abcdef");
  CHECK(process.start == 1'700'000'000'000'000'000);
  CHECK(process.overwritten == 7);
  CHECK(process.dropped == 1);
  CHECK(process.dropped_entries == 2);
  CHECK(process.full_errno == 0);
}

TEST_CASE("events of version 1 are read with what they name") {
  auto reader = test::open_traces({path});
  const auto events = test::events_of(reader);
  REQUIRE(events.size() == 4);  // without the one of an older generation
  const auto& [phase, alloc, end, shutdown] = std::tie(events[0], events[1], events[2], events[3]);
  CHECK(phase.event.op == Op::phase);
  CHECK(reader.text(0, phase.event.name) == "train");
  CHECK(phase.time == 1'700'000'000'000'000'100);
  CHECK(phase.thread == 77);
  CHECK(alloc.event.op == Op::alloc);
  CHECK(alloc.event.kind == kind_of(Memory::driver));
  CHECK(alloc.event.device == 0);
  CHECK(is_managed(alloc.event));
  CHECK(alloc.event.address == 0x7f0000000000);
  CHECK(alloc.event.bytes == (20_MiB).value);
  CHECK(alloc.event.value == 9);
  CHECK(end.event.op == Op::pause_end);
  CHECK(end.event.device == Event::no_device);
  CHECK(result_of(end.event) == static_cast<int>(Code::host_budget));
  CHECK(moved(end.event).kept == Bytes{2});
  CHECK(shutdown.event.op == Op::shutdown);
}

TEST_CASE("a dictionary of version 1 has stacks, modules and devices") {
  const auto reader = test::open_traces({path});
  const auto frames = reader.stack(0, StackId{2});
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].address == 0x1010);
  CHECK(frames[1].function == "step");
  CHECK(frames[1].file == "train.py");
  CHECK(frames[1].line == 12);
  REQUIRE(reader.modules(0).size() == 1);
  CHECK(reader.modules(0)[0].end == 0x2000);
  CHECK(reader.modules(0)[0].path == "/lib/libx.so");
  CHECK(reader.modules(0)[0].build_id == "abcd");
  REQUIRE(reader.devices(0).size() == 1);
  CHECK(reader.devices(0)[0].total == 141_GiB);
  CHECK(reader.devices(0)[0].name == "H200");
  CHECK(reader.damage().size() == 1);  // it is cut behind its last event
}
