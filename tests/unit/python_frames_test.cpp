// SPDX-License-Identifier: Apache-2.0
// Interpreters that are not what they seem. tests/python/match_test.py has real ones.
#include "shim/python_frames.hpp"

#include <array>
#include <cstring>
#include <map>
#include <string>

#include "tests/catch.hpp"

using namespace lowtide;

namespace {

/// What the process exports, for one test.
std::map<std::string, void*> exported;
void* look_up(const char* name) {
  const auto found = exported.find(name);
  return found == exported.end() ? nullptr : found->second;
}

void* state = nullptr;
const char* version = "";
void* this_state() { return state; }
const char* this_version() { return version; }

int code_type = 0;
int text_type = 0;

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

/// An interpreter that says it is `its_version`, with a thread whose state is `its_state`.
PythonWalk walk(const char* its_version, void* its_state) {
  version = its_version;
  state = its_state;
  exported = {{"PyGILState_GetThisThreadState", address_of(&this_state)},
              {"Py_GetVersion", address_of(&this_version)},
              {"PyCode_Type", &code_type},
              {"PyUnicode_Type", &text_type}};
  return walk_python(&look_up);
}

using Words = std::array<std::uint64_t, 64>;
std::uint64_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// A str of 3.11: compact, one byte for each character.
Words text_of(const char* text, bool ascii = true) {
  Words words{};
  words[1] = word(&text_type);
  words[2] = std::strlen(text);
  words[4] = 1 << 2 | 1 << 5 | (ascii ? 1 << 6 : 0);
  std::memcpy(reinterpret_cast<char*>(words.data()) + (ascii ? 48 : 72), text, std::strlen(text));
  return words;
}

/// A thread of 3.11 that is in `depth` calls of one function.
struct Thread {
  explicit Thread(std::size_t depth) : frames(depth) {
    code[1] = word(&code_type);
    code[14] = word(file.data());
    code[15] = word(name.data());
    for (std::size_t i = 0; i < depth; ++i) {
      frames[i][4] = word(code.data());
      frames[i][6] = i + 1 < depth ? word(frames[i + 1].data()) : 0;
    }
    holder[1] = depth == 0 ? 0 : word(frames[0].data());
    state[7] = word(holder.data());
  }
  Words file = text_of("/a/site-packages/b/c.py");
  Words name = text_of("work");
  Words code{};
  std::vector<Words> frames;
  Words holder{};
  Words state{};
};

}  // namespace

TEST_CASE("a process without Python, and a thread without a state, have no frames and hide none") {
  exported.clear();
  const auto without = walk_python(&look_up);
  CHECK(without.frames.empty());
  CHECK_FALSE(without.hidden);
  CHECK_FALSE(walk("3.11.7 (main)", nullptr).hidden);
}

TEST_CASE("frames are read, the innermost first, up to a bound") {
  Thread thread(3);
  const auto walked = walk("3.11.7 (main)", thread.state.data());
  REQUIRE(walked.frames.size() == 3);
  CHECK(walked.frames[2].module == "b.c");
  CHECK(walked.frames[2].function == "work");
  Thread deep(10'000);
  CHECK(walk("3.11.7 (main)", deep.state.data()).frames.size() == PythonWalk::most);
  Thread idle(0);
  CHECK_FALSE(walk("3.11.7 (main)", idle.state.data()).hidden);
}

TEST_CASE("names outside of ASCII are UTF-8") {
  Thread thread(1);
  thread.name = text_of(
      "gr\xF6\xDF"
      "e",
      false);
  CHECK(walk("3.11.7 (main)", thread.state.data()).frames.at(0).function == "größe");
}

TEST_CASE("an interpreter of an unknown version hides its frames") {
  Thread thread(3);
  for (const auto* unknown : {"3.8.1", "3.13.0", "3.14.0", "3.99.0", "4.0", ""}) {
    CAPTURE(unknown);
    CHECK(walk(unknown, thread.state.data()).hidden);
  }
}

TEST_CASE("an interpreter that is built differently hides its frames and breaks nothing") {
  for (const auto* other : {"3.9.1", "3.10.1", "3.12.1"}) {
    Thread thread(3);
    CAPTURE(other);
    CHECK(walk(other, thread.state.data()).frames.empty());
  }
  Thread of_other_types(3);
  of_other_types.code[1] = 0x1000;
  CHECK(walk("3.11.7", of_other_types.state.data()).hidden);
  Thread of_garbage(3);
  of_garbage.frames[0][4] = 0xdead'beef'0000;
  of_garbage.frames[0][6] = 0x1234;
  CHECK(walk("3.11.7", of_garbage.state.data()).hidden);
  Words nothing{};
  nothing[7] = 0x10;
  CHECK(walk("3.11.7", nothing.data()).frames.empty());
}

TEST_CASE("from 3.13 on the interpreter's own table counts") {
  Thread thread(2);
  thread.state[9] = word(thread.frames[0].data());
  for (auto* text : {&thread.file, &thread.name})
    std::memmove(text->data() + 5, text->data() + 6, 8 * (text->size() - 6));
  for (const auto& [its_version, first] : {std::pair{"3.13.1", 19}, std::pair{"3.14.0", 22}}) {
    Words table{};
    std::memcpy(table.data(), "xdebugpy", 8);
    const int frame = first + 9;
    const int code = frame + (first == 19 ? 6 : 8);
    table[static_cast<std::size_t>(first + 4)] = 72;
    table[static_cast<std::size_t>(frame + 1)] = 48;
    table[static_cast<std::size_t>(frame + 2)] = 32;
    table[static_cast<std::size_t>(code + 1)] = 112;
    table[static_cast<std::size_t>(code + 2)] = 120;
    (void)walk(its_version, thread.state.data());
    exported["_PyRuntime"] = table.data();
    CAPTURE(its_version);
    CHECK(walk_python(&look_up).frames.size() == 2);
    table[2] = 1;  // without a GIL
    CHECK(walk_python(&look_up).hidden);
  }
}
