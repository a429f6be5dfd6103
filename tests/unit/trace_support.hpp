// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/trace/reader.hpp"
#include "allocator/trace/recorder.hpp"
#include "tests/catch.hpp"

namespace lowtide::test {

/// A folder for traces, that goes away.
class TraceFolder {
 public:
  TraceFolder() {
    char name[] = "/tmp/lowtide-trace-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  ~TraceFolder() { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "a.ltt") const { return folder_ + "/" + name; }
  TraceSettings settings(Bytes size = 1_MiB, const std::string& name = "a.ltt") const {
    TraceSettings settings;
    settings.file = path(name);
    settings.size = size;
    return settings;
  }

 private:
  std::string folder_;
};

inline std::unique_ptr<trace::Recorder> start(const TraceSettings& settings) {
  auto recorder = trace::Recorder::start(settings, "1.2.3", "build");
  if (!recorder) FAIL(recorder.error().message());
  return std::move(*recorder);
}

inline trace::Event alloc(std::uint64_t address, std::uint64_t bytes) {
  trace::Event event;
  event.op = trace::Op::alloc;
  event.kind = kind_of(trace::Memory::driver);
  event.device = 0;
  event.address = address;
  event.bytes = bytes;
  return event;
}

inline trace::Reader open_traces(const std::vector<std::string>& paths) {
  auto reader = trace::Reader::open(paths);
  if (!reader) FAIL(reader.error().message());
  return std::move(*reader);
}

inline std::vector<trace::TraceEvent> events_of(trace::Reader& reader) {
  std::vector<trace::TraceEvent> events;
  reader.for_each([&](const trace::TraceEvent& event) { events.push_back(event); });
  return events;
}

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace lowtide::test
