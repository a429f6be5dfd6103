// SPDX-License-Identifier: Apache-2.0
// Files that are cut, damaged or made to do harm: what is whole is read, and what is not is told, with its place.
#include <sys/stat.h>

#include <cstring>

#include "allocator/trace/format.hpp"
#include "tests/unit/trace_support.hpp"

using namespace lowtide;
using namespace lowtide::trace;
using namespace lowtide::test;

namespace {

constexpr std::uint64_t recorded = 3000;  // two full chunks and a piece

/// A good trace, whose bytes a test changes. Its first chunk is the dictionary, and the events lie in the next three.
class Patched {
 public:
  Patched() {
    const auto recorder = start(folder_.settings());
    const Frame frames[] = {{0x20, {}, {}, 0}, {0x10, {}, {}, 0}};
    name_ = recorder->intern("weights");
    stack_ = recorder->stack(frames);
    for (std::uint64_t i = 0; i < recorded; ++i) recorder->record(alloc(0, i));
    bytes_ = content_of(folder_.path());
  }

  template <class Value>
  void put(std::size_t offset, Value value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  void cut(std::size_t size) { bytes_.resize(size); }
  static std::size_t chunk(std::size_t number) { return header_bytes + number * chunk_bytes; }
  static std::size_t event(std::size_t number, std::size_t slot) {
    return chunk(number) + sizeof(ChunkHeader) + slot * sizeof(Event);
  }

  std::string path() {
    write_file(folder_.path("patched"), bytes_);
    return folder_.path("patched");
  }
  Reader open() { return open_traces({path()}); }
  std::string error() {
    const auto reader = Reader::open(std::vector<std::string>{path()});
    REQUIRE_FALSE(reader);
    CHECK(reader.error().code() == Code::invalid);
    return reader.error().message();
  }
  std::size_t size() const { return bytes_.size(); }
  StringId name() const { return name_; }
  StackId stack() const { return stack_; }

 private:
  TraceFolder folder_;
  std::string bytes_;
  StringId name_{};
  StackId stack_{};
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The only damage is at `offset`.
void check_damage(const Reader& reader, std::uint64_t offset) {
  REQUIRE(reader.damage().size() == 1);
  CHECK(reader.damage()[0].offset == offset);
  CHECK_FALSE(reader.damage()[0].what.empty());
}

}  // namespace

TEST_CASE("what is no trace is an error with its name") {
  const TraceFolder folder;
  for (const std::string content : {"", "a text",
                                    "\x7f"
                                    "ELF"}) {
    write_file(folder.path("other"), content + std::string(content.size() > 6 ? 5000 : 0, 'x'));
    const auto reader = Reader::open(std::vector{folder.path("other")});
    REQUIRE_FALSE(reader);
    CHECK(has(reader.error().message(), folder.path("other") + " is not a trace"));
  }
  ::mkfifo(folder.path("pipe").c_str(), 0600);
  CHECK_FALSE(Reader::open(std::vector{folder.path("pipe")}));
  CHECK_FALSE(Reader::open(std::vector{folder.path("missing")}));
  CHECK_FALSE(Reader::open(std::vector{folder.path(".")}));
}

TEST_CASE("a trace of another version or byte order is an error that says so") {
  Patched other_order;
  other_order.put(offsetof(FileHeader, byte_order), 0x04030201);
  CHECK(has(other_order.error(), "byte order"));
  Patched version;
  version.put(offsetof(FileHeader, version), 7);
  CHECK(has(version.error(), "of version 7, and this is a reader of version 1"));
  Patched sizes;
  sizes.put(offsetof(FileHeader, chunk_size), 0);
  CHECK(has(sizes.error(), "sizes 4096, 0 and 48"));
}

TEST_CASE("a file that is cut anywhere gives what lies before, and where it ends") {
  Patched file;
  std::size_t count = recorded;
  for (auto size = Patched::event(3, 400) + 5; size >= header_bytes; size -= std::min<std::size_t>(size, 9'999)) {
    file.cut(size);
    auto reader = file.open();
    const auto events = events_of(reader);
    CHECK(events.size() <= count);
    count = events.size();
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].event.bytes != i) FAIL("event " << events[i].event.bytes << " is read as event " << i);
    }
    check_damage(reader, size);
  }
  CHECK(count == 0);
  file.cut(header_bytes - 1);
  CHECK(has(file.error(), "4095 bytes"));
}

TEST_CASE("an event of another generation is not there") {
  Patched file;
  file.put(Patched::event(3, 1) + offsetof(Event, generation), 9);
  auto reader = file.open();
  CHECK(events_of(reader).size() == recorded - 1);
}

TEST_CASE("a hole in a full chunk is told with its chunk, once, and the rest is read") {
  Patched file;
  file.put(Patched::event(1, 5), std::uint64_t{0});
  auto reader = file.open();
  CHECK(events_of(reader).size() == recorded - 1);
  CHECK(events_of(reader).size() == recorded - 1);
  check_damage(reader, Patched::chunk(1));
}

TEST_CASE("a chunk that does not say whose it is keeps its place in time") {
  Patched file;
  file.put(Patched::event(2, 0), std::uint64_t{0});
  auto reader = file.open();
  const auto events = events_of(reader);
  REQUIRE(events.size() == recorded);
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].event.bytes != i) FAIL("event " << events[i].event.bytes << " is read as event " << i);
  }
  CHECK(events[2000].thread == 0);
}

TEST_CASE("a chunk header that means nothing costs its chunk alone") {
  for (const auto claim : {claim_word(1, static_cast<ChunkState>(77)), claim_word(0, ChunkState::open)}) {
    Patched file;
    file.put(Patched::chunk(1), claim);
    auto reader = file.open();
    CHECK(events_of(reader).size() == recorded - (events_per_chunk - 1));
    check_damage(reader, Patched::chunk(1));
    CHECK(reader.text(0, file.name()) == "weights");
  }
}

TEST_CASE("an op of a later time is passed over") {
  Patched file;
  file.put(Patched::event(1, 5), std::uint8_t{200});
  auto reader = file.open();
  CHECK(events_of(reader).size() == recorded - 1);
  CHECK(reader.damage().empty());
}

TEST_CASE("a stack that is its own caller ends") {
  Patched file;
  const auto first = Patched::chunk(0) + sizeof(ChunkHeader);
  const auto string_bytes = sizeof(EntryHeader) + 8;  // "weights"
  const auto second_frame = first + string_bytes + sizeof(EntryHeader) + sizeof(FrameEntry);
  file.put(second_frame + sizeof(EntryHeader) + offsetof(FrameEntry, parent), 2);
  const auto reader = file.open();
  CHECK(reader.stack(0, file.stack()).empty());
  CHECK(reader.text(0, file.name()) == "weights");
  check_damage(reader, second_frame);
}

TEST_CASE("a string that is longer than its chunk is not there") {
  Patched file;
  const auto first = Patched::chunk(0) + sizeof(ChunkHeader);
  file.put(first, std::uint32_t{0xFFFFFF01});
  auto reader = file.open();
  CHECK(reader.text(0, file.name()).empty());
  CHECK(reader.stack(0, file.stack()).empty());
  CHECK(events_of(reader).size() == recorded);
  check_damage(reader, first);
}

TEST_CASE("a header that promises more chunks than can be is not believed") {
  Patched file;
  file.put(offsetof(FileHeader, chunks), std::uint32_t{0xFFFFFFFF});
  auto reader = file.open();
  CHECK(events_of(reader).size() == recorded);
  check_damage(reader, 0);
}

TEST_CASE("texts of a header that have no end are cut at theirs") {
  Patched file;
  for (std::size_t i = 0; i < 64; ++i) file.put(offsetof(FileHeader, host) + i, 'h');
  const auto reader = file.open();
  CHECK(reader.processes()[0].host == std::string(64, 'h'));
}
