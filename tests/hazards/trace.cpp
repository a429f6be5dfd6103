// SPDX-License-Identifier: Apache-2.0
// What a trace says of a program is what the program did.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "allocator/trace/reader.hpp"
#include "tests/catch.hpp"
#include "tests/hazards/child.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/program.hpp"

using namespace hazards;
using lowtide::trace::Event;
using lowtide::trace::Memory;
using lowtide::trace::Op;
using lowtide::trace::Reader;
using lowtide::trace::TraceEvent;

namespace {

/// A folder for traces and metrics, that goes away.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lowtide-traces-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  /// What makes a program record here.
  Environment traced(const std::string& more = "") const {
    return {{"LOWTIDE_TRACE", path_ + "/%p.ltt"}, {"LOWTIDE_CONF", "trace.interval:0" + more}};
  }
  std::string path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  std::string path_;
};

struct Trace {
  explicit Trace(const std::vector<std::string>& files) : reader(open(files)) {
    reader.for_each([&](const TraceEvent& event) { events.push_back(event); });
  }
  static Reader open(const std::vector<std::string>& files) {
    auto opened = Reader::open(files);
    if (!opened) throw std::runtime_error(opened.error().message());
    return std::move(*opened);
  }

  std::string name(const TraceEvent& traced) const {
    return std::string(reader.text(traced.process, traced.event.name));
  }
  /// Every event of memory, as the program says it.
  std::string memory() const {
    std::string text;
    for (const auto& traced : events) {
      const Event& event = traced.event;
      if (event.op < Op::alloc || event.op > Op::out_of_memory) continue;
      text += std::string(lowtide::trace::to_text(event.op)) + " " +
              lowtide::trace::to_text(static_cast<Memory>(event.kind)) + " " + std::to_string(event.address) + " " +
              std::to_string(event.bytes) + " " + name(traced) + "\n";
    }
    return text;
  }
  /// The names of all events but those of memory and samples, in order.
  std::string course() const {
    std::string text;
    for (const auto& traced : events) {
      const Op op = traced.event.op;
      const bool sample = op >= Op::sample_device && op <= Op::sample_others;
      if ((op >= Op::alloc && op <= Op::out_of_memory) || sample) continue;
      text += std::string(lowtide::trace::to_text(op)) + (name(traced).empty() ? "" : ":" + name(traced)) + " ";
    }
    return text;
  }
  const Event& first(Op op) const {
    for (const auto& traced : events) {
      if (traced.event.op == op) return traced.event;
    }
    throw std::runtime_error(std::string("no event ") + lowtide::trace::to_text(op));
  }
  std::size_t count(Op op) const {
    return static_cast<std::size_t>(
        std::count_if(events.begin(), events.end(), [&](const auto& traced) { return traced.event.op == op; }));
  }

  Reader reader;
  std::vector<TraceEvent> events;
};

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void wait_for_file(const std::string& path, const std::string& part) {
  while (content_of(path).find(part) == std::string::npos) ::usleep(1000);
}

}  // namespace

TEST_CASE("a trace has every call that gave or took memory, in its order", "[trace]") {
  const Folder folder;
  const auto ending = run_victim("trace-every-kind", folder.traced());
  CHECK(ending.status == 0);
  CHECK(ending.errors == "");
  const Trace trace(folder.files());
  CHECK(trace.memory() == ending.output);
  CHECK(trace.reader.damage().empty());
  CHECK(trace.events.back().event.op == Op::shutdown);
  const auto& process = trace.reader.processes()[0];
  CHECK(process.dropped == 0);
  CHECK(process.command.find("trace-every-kind") != std::string::npos);
}

TEST_CASE("what dies with its context is freed in the trace", "[trace]") {
  const Folder folder;
  const auto ending = run_victim("trace-context", folder.traced());
  CHECK(ending.status == 0);
  const Trace trace(folder.files());
  CHECK(trace.memory() == ending.output);
  CHECK(trace.count(Op::context_created) == 2);
  CHECK(trace.first(Op::context_destroyed).value == trace.first(Op::alloc).value);
}

TEST_CASE("a trace tells what was paused, refused and updated, and by whom device memory was held", "[trace]") {
  const Folder folder;
  Child child("hazards_victim", {"trace-life"}, folder.traced());
  CHECK(child.line() == "done");
  CHECK(child.end().status == 0);
  const Trace trace(folder.files());
  CHECK(trace.course() ==
        "context_created phase:rollout pause_begin:weights wait copy pause_end:weights resume_begin:weights copy "
        "resume_end:weights phase:train update_begin:weights pause_begin:weights pause_end:weights refusal:weights "
        "update_commit:weights shutdown ");
  CHECK(lowtide::trace::moved(trace.first(Op::pause_end)).parked.value == 4 * mib + 1);
  CHECK(trace.first(Op::copy).bytes == 4 * mib + 1);
  CHECK(lowtide::trace::result_of(trace.first(Op::refusal)) == LOWTIDE_ERROR_REFUSED);
  const auto devices = trace.reader.devices(0);
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].total.value == 256 * mib);
  CHECK(devices[0].uuid.starts_with("GPU-"));
}

TEST_CASE("the rows of a sample are what the device has in use, where nothing else is on it", "[trace]") {
  const Folder folder;
  Child child("hazards_victim", {"trace-life"}, folder.traced());
  CHECK(child.line() == "done");
  child.end();
  const Trace trace(folder.files());
  std::uint64_t left = 0;
  std::size_t samples = 0;
  std::map<Op, std::uint64_t> most;
  for (const auto& [event, time, process, thread] : trace.events) {
    const bool is_row = event.op == Op::sample_tag || event.op == Op::sample_unmanaged || event.op == Op::sample_others;
    if (event.op == Op::sample_device) {
      CHECK(left == 0);
      left = event.bytes;
      ++samples;
    }
    if (!is_row) continue;
    CHECK(event.bytes <= left);
    left -= event.bytes;
    most[event.op] = std::max(most[event.op], event.bytes);
  }
  CHECK(left == 0);
  CHECK(samples > 8);
  CHECK(most[Op::sample_tag] == 4 * mib + 1);
  CHECK(most[Op::sample_unmanaged] == 3 * mib);
}

TEST_CASE("a resume that finds no room is in the trace with the memory that it needed, and that there was", "[trace]") {
  const Folder folder;
  const auto ending = run_victim("trace-no-room", folder.traced());
  CHECK(ending.status == 0);
  const Trace trace(folder.files());
  const Event& refusal = trace.first(Op::refusal);
  CHECK(lowtide::trace::result_of(refusal) == LOWTIDE_ERROR_DEVICE_MEMORY);
  CHECK(refusal.bytes == 200 * mib);
  CHECK(std::to_string(refusal.value) + "\n" == ending.output);
}

TEST_CASE("a fork child writes nothing into its parent's trace", "[trace]") {
  const Folder folder;
  const auto ending = run_victim("trace-fork", folder.traced());
  CHECK(ending.status == 0);
  CHECK(ending.errors == "");
  REQUIRE(folder.files().size() == 1);
  CHECK(Trace(folder.files()).memory().starts_with(ending.output));
}

TEST_CASE("a child that comes to the GPU first has a trace of its own", "[trace]") {
  const Folder folder;
  const auto ending = run_victim("trace-fork-first", folder.traced());
  CHECK(ending.status == 0);
  REQUIRE(folder.files().size() == 1);
  CHECK(Trace(folder.files()).memory().starts_with(ending.output));
}

TEST_CASE("a program that is put in the place of one that is traced is traced", "[trace]") {
  const Folder folder;
  const auto ending = run_victim("trace-exec", folder.traced());
  CHECK(ending.status == 0);
  CHECK(ending.errors == "");
  REQUIRE(folder.files().size() == 1);
  CHECK(Trace(folder.files()).memory() == ending.output);
}

TEST_CASE("a program that was killed leaves all that it had done", "[trace]") {
  const Folder folder;
  Child child("hazards_victim", {"trace-lives-on"}, folder.traced());
  CHECK(child.line() == "100");
  child.kill();
  child.end();
  const Trace trace(folder.files());
  CHECK(trace.reader.damage().empty());
  CHECK(trace.count(Op::alloc) == 100);
  CHECK(trace.count(Op::shutdown) == 0);
}

TEST_CASE("a trace tells how long a thread waited at the gate", "[trace]") {
  const Folder folder;
  Child child("hazards_victim", {"trace-gate"}, folder.traced());
  CHECK(child.line() == "ready");
  must(is_ok(ask(child.pid(), "pause")), "paused from outside");
  child.say("go");
  child.wait_until_asleep();
  must(is_ok(ask(child.pid(), "resume")), "resumed");
  CHECK(child.end().status == 0);
  const Trace trace(folder.files());
  const auto at_gate = [](const TraceEvent& traced) {
    return traced.event.op == Op::wait && traced.event.kind == kind_of(lowtide::trace::Wait::gate);
  };
  const auto wait = std::find_if(trace.events.begin(), trace.events.end(), at_gate);
  REQUIRE(wait != trace.events.end());
  CHECK(wait->event.value > 0);
  CHECK(std::find_if(wait + 1, trace.events.end(), at_gate) == trace.events.end());
}

TEST_CASE("call stacks name the program, by an address in a module that is told", "[trace]") {
  const Folder folder;
  CHECK(run_victim("trace-every-kind", folder.traced(",trace.stacks:native")).status == 0);
  const Trace trace(folder.files());
  const auto stack = trace.reader.stack(0, trace.first(Op::alloc).stack);
  REQUIRE(stack.size() > 3);
  const auto modules = trace.reader.modules(0);
  const auto in_program = [&](const auto& frame) {
    return std::any_of(modules.begin(), modules.end(), [&](const auto& module) {
      return module.start <= frame.address && frame.address < module.end && module.path.ends_with("/hazards_victim") &&
             !module.build_id.empty();
    });
  };
  CHECK(std::any_of(stack.begin(), stack.end(), in_program));
}

TEST_CASE("a trace that cannot be made is said once, and the program runs on", "[trace]") {
  const auto ending = run_victim("trace-every-kind", {{"LOWTIDE_TRACE", "/no/such/folder/a.ltt"}});
  CHECK(ending.status == 0);
  CHECK(count_of(ending.errors, "\n") == 1);
  CHECK(says(ending.errors, "/no/such/folder/a.ltt"));
}

TEST_CASE("metrics are there while the program runs, and go with it", "[trace]") {
  const Folder folder;
  const Environment metrics{{"LOWTIDE_METRICS", folder.path() + "/%p.prom"}};
  Child child("hazards_victim", {"trace-life"}, metrics);
  CHECK(child.line() == "done");
  const auto path = folder.path() + "/" + std::to_string(child.pid()) + ".prom";
  const auto pid = "pid=\"" + std::to_string(child.pid()) + "\"";
  wait_for_file(path, "lowtide_refusals_total{" + pid + ",result=\"REFUSED\"} 1\n");
  const auto text = content_of(path);
  CHECK(says(text, "lowtide_device_bytes{" + pid + ",device=\"0\",tag=\"weights\",state=\"resident\"} 4194305\n"));
  CHECK(says(text, "lowtide_unmanaged_bytes{" + pid + ",device=\"0\",kind=\"driver\"} 3145728\n"));
  CHECK(says(text, "lowtide_pause_seconds_count{" + pid + ",tag=\"weights\"} 2\n"));
  CHECK(says(text, "lowtide_moved_bytes_total{" + pid + ",step=\"resume\",tag=\"weights\",how=\"copied\"} 4194305\n"));
  CHECK(says(text, "lowtide_phase_info{" + pid + ",phase=\"train\"} 1\n"));
  CHECK(folder.files() == std::vector<std::string>{path});
  CHECK(child.end().status == 0);
  CHECK(folder.files().empty());
}

TEST_CASE("metrics that cannot be written are said once, and the program runs on", "[trace]") {
  const auto ending = run_victim("trace-context", {{"LOWTIDE_METRICS", "/no/such/folder/a.prom"}});
  CHECK(ending.status == 0);
  const auto life = Child("hazards_victim", {"trace-life"}, {{"LOWTIDE_METRICS", "/no/such/folder/a.prom"}}).end();
  CHECK(life.status == 0);
  CHECK(count_of(life.errors, "\n") == 1);
  CHECK(says(life.errors, "/no/such/folder/a.prom"));
}

TEST_CASE("metrics take the place of metrics alone: of no other file, and of no device or pipe", "[trace]") {
  const Folder folder;
  const auto file = folder.path() + "/notes.txt";
  const auto pipe = folder.path() + "/pipe";
  std::ofstream(file) << "precious";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const auto& path : {file, pipe}) {
    const auto ending = Child("hazards_victim", {"trace-life"}, {{"LOWTIDE_METRICS", path}}).end();
    CHECK(ending.status == 0);
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, path));
  }
  CHECK(content_of(file) == "precious");
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(folder.files() == std::vector<std::string>{file, pipe});
}

TEST_CASE("a process that was killed leaves metrics that the next one replaces, and takes away", "[trace]") {
  const Folder folder;
  const auto path = folder.path() + "/a.prom";
  std::ofstream(path) << "# HELP lowtide_device_used_bytes Device memory in use by all processes.\n";
  CHECK(Child("hazards_victim", {"trace-life"}, {{"LOWTIDE_METRICS", path}}).end().status == 0);
  CHECK(folder.files().empty());
}

TEST_CASE("metrics are written again as soon as that can be done", "[trace]") {
  const Folder folder;
  const auto later = folder.path() + "/later";
  Child child("hazards_victim", {"trace-life"},
              {{"LOWTIDE_METRICS", later + "/a.prom"}, {"LOWTIDE_CONF", "metrics.interval:100ms"}});
  CHECK(child.line() == "done");
  std::filesystem::create_directory(later);
  wait_for_file(later + "/a.prom", "lowtide_phase_info");
  const auto ending = child.end();
  CHECK(ending.status == 0);
  CHECK(count_of(ending.errors, "\n") == 1);
}
