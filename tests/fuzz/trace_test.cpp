// SPDX-License-Identifier: Apache-2.0
// Trace files that anybody made: what is opened is read to its end, never has more in it than the file, and whatever it
// refers to is found or is not there. Played from the files of corpus/trace, and from what a recorder writes.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>

#include "allocator/base/unique_fd.hpp"
#include "allocator/trace/format.hpp"
#include "allocator/trace/reader.hpp"
#include "tests/fuzz/fuzzing.hpp"
#include "tests/sanitized.hpp"
#include "tests/unit/trace_support.hpp"

using namespace fuzz;
using namespace lowtide;
using namespace lowtide::trace;

namespace {

/// A file without a name or a disk.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("trace", MFD_CLOEXEC)) { expect(static_cast<bool>(fd_), "memfd_create"); }
  void fill(const std::string& content) const {
    expect(::ftruncate(fd_.get(), 0) == 0, "ftruncate");
    expect(::pwrite(fd_.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()), "pwrite");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

std::vector<std::string> corpus() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(LOWTIDE_FUZZ_CORPUS "/trace"))
    files.push_back(test::content_of(entry.path()));
  std::sort(files.begin(), files.end());
  return files;
}

/// What a recorder writes: several threads, a ring that has been around or not, a dictionary. Cut where nothing
/// follows.
std::string recorded(std::uint64_t events) {
  const test::TraceFolder folder;
  {
    const auto recorder = test::start(folder.settings());
    recorder->module({0x1000, 0x2000, 0, "/lib/libx.so", "abcd"});
    recorder->device({DeviceId{0}, 80_GiB, "GPU-1", "H200"});
    const auto write = [&] {
      for (std::uint64_t i = 0; i < events; ++i) {
        auto event = test::alloc(i, i);
        event.name = recorder->intern("tag" + std::to_string(i % 50));
        const Frame frames[] = {{i % 20 + 1, {}, {}, 0}, {0, event.name, event.name, 1}};
        event.stack = recorder->stack(frames);
        recorder->record(event);
      }
    };
    std::thread(write).join();
    std::thread other(write);
    write();
    other.join();
  }
  auto content = test::content_of(folder.path());
  content.resize(content.find_last_not_of('\0') + 1);
  return content;
}

std::size_t offset_in(Random& random, const std::string& text) {
  // Headers and first entries are what decides; most of a chunk is alike.
  std::size_t at = random.below(random.one_in(3) ? text.size() : 512);
  if (random.one_in(2)) at = header_bytes + chunk_bytes * random.below(1 + text.size() / chunk_bytes) + at % 160;
  return std::min(at, text.size() - 1);
}

template <class Value>
void put(std::string& text, std::size_t at, Value value) {
  std::memcpy(text.data() + at, &value, std::min(sizeof value, text.size() - at));
}

/// Overwrites, so that what follows keeps its place, or cuts, or puts pieces elsewhere.
void change(Random& random, std::string& text) {
  constexpr std::array<std::uint64_t, 8> edges{0, 1, 2, 3, 0xFF, 0x7FFF'FFFF, 0xFFFF'FFFF, ~std::uint64_t{0}};
  const auto at = offset_in(random, text);
  switch (random.below(8)) {
    case 0: text[at] = static_cast<char>(text[at] ^ (1 << random.below(8))); break;
    case 1: text[at] = static_cast<char>(random.next()); break;
    case 2: put(text, at / 4 * 4, static_cast<std::uint32_t>(random.pick(edges))); break;
    case 3: put(text, at / 8 * 8, random.pick(edges)); break;
    case 4: put(text, at / 8 * 8, random.next()); break;
    case 5: text.replace(at, std::min<std::size_t>(64, text.size() - at), random.bytes(64)); break;
    case 6: {
      const auto from = offset_in(random, text);
      const auto size = std::min({1 + random.below(chunk_bytes), text.size() - at, text.size() - from});
      text.replace(at, size, text.substr(from, size));
      break;
    }
    default:
      if (random.one_in(8)) text.resize(1 + at);
  }
}

void look_up(const Reader& reader, const TraceEvent& event) {
  expect(is_known(event.event.op) && event.event.op != Op::thread, "an event that is none");
  expect(reader.text(event.process, event.event.name).size() <= longest_string, "a text is too long");
  for (const auto& frame : reader.stack(event.process, event.event.stack))
    expect(frame.function.size() <= longest_string && frame.file.size() <= longest_string, "a text is too long");
}

void check(const MemoryFile& file, const std::string& content) {
  file.fill(content);
  auto reader = Reader::open(std::vector{file.path()});
  if (!reader) return expect(*reader.error().message() != '\0', "an error says what");
  std::size_t count = 0;
  reader->for_each([&](const TraceEvent& event) {
    if (count++ % 16 == 0) look_up(*reader, event);
  });
  expect(count <= content.size() / sizeof(Event), "more events than the file has");
  for (const auto& module : reader->modules(0)) expect(module.path.size() <= longest_string, "a text is too long");
  for (const auto& device : reader->devices(0)) expect(device.name.size() <= longest_string, "a text is too long");
  expect(reader->damage().size() <= 100, "damage without end");
  for (const auto& damage : reader->damage())
    expect(damage.offset <= content.size() && !damage.what.empty(), "damage outside of the file");
}

}  // namespace

TEST_CASE("a trace is read to its end, whatever it holds") {
  auto samples = corpus();
  REQUIRE(samples.size() >= 5);
  const MemoryFile file;
  for (const auto& sample : samples) check(file, sample);
  samples.push_back(recorded(300));
  samples.push_back(recorded(3000));
  for_each_seed([&](Random& random) {
    for (int i = 0; i < cases(test::sanitized ? 12'000 : 60'000); ++i) {
      auto content = random.one_in(100) ? random.bytes(random.below(9000)) : random.pick(samples);
      for (auto changes = content.empty() ? 0 : 1 + random.below(6); changes > 0; --changes) change(random, content);
      check(file, content);
    }
  });
}
