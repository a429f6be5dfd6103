// SPDX-License-Identifier: Apache-2.0
// What JsonWriter writes, another library reads as the same.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "allocator/base/json_writer.hpp"
#include "tests/catch.hpp"
#include "tests/fuzz/fuzzing.hpp"

using namespace fuzz;
using lowtide::JsonWriter;
using nlohmann::json;

namespace {

const Material texts{
    {"weights", "python train.py --x=\"y\"", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8A", "\\u0041\\", "a\tb\r\n"},
    {"\"", "\\", std::string(1, '\0'), "\x7F", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\xAF", "\xEF\xBF\xBD",
     "\xE2\x80\xA8", "</script>", "\xF0\x9F"}};

bool is_utf8(const std::string& text) {
  try {
    (void)json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

/// Text that JSON can hold as it is.
std::string good_text(Random& random) {
  auto text = mutated(random, texts);
  while (!is_utf8(text)) text = mutated(random, texts);
  return text;
}

json number(Random& random, JsonWriter& writer) {
  const auto bits = random.next() >> random.below(64);
  switch (random.below(3)) {
    case 0: writer.value(bits); return bits;
    case 1: writer.value(static_cast<std::int64_t>(bits)); return static_cast<std::int64_t>(bits);
    default: break;
  }
  double real = 0;
  static_assert(sizeof real == sizeof bits);
  const auto pattern = random.next();
  std::memcpy(&real, &pattern, sizeof real);
  writer.value(real);
  return std::isfinite(real) ? json(real) : json();
}

json value(Random& random, JsonWriter& writer, int depth) {
  const auto kind = random.below(depth > 6 ? 4 : 6);
  if (kind == 0) return number(random, writer);
  if (kind == 1) {
    const auto text = good_text(random);
    writer.value(text);
    return text;
  }
  if (kind == 2) {
    const bool flag = random.one_in(2);
    writer.value(flag);
    return flag;
  }
  if (kind == 3) {
    writer.null();
    return nullptr;
  }
  json all = kind == 4 ? json::array() : json::object();
  kind == 4 ? writer.begin_array() : writer.begin_object();
  for (auto count = random.below(5); count > 0; --count) {
    if (kind == 4) {
      all.push_back(value(random, writer, depth + 1));
      continue;
    }
    const auto name = std::to_string(count) + good_text(random);
    writer.key(name);
    all[name] = value(random, writer, depth + 1);
  }
  kind == 4 ? writer.end_array() : writer.end_object();
  return all;
}

}  // namespace

TEST_CASE("a value is read back as it was written, on one line") {
  for_each_seed([](Random& random) {
    for (int i = 0; i < cases(2'000); ++i) {
      JsonWriter writer;
      const auto wanted = value(random, writer, 0);
      const auto text = writer.take();
      expect(text.find('\n') == std::string::npos, "a line ends in " + shown(text));
      expect(json::parse(text) == wanted, shown(text) + " instead of " + shown(wanted.dump()));
    }
  });
}

TEST_CASE("text that is not UTF-8 becomes JSON all the same") {
  for_each_seed([](Random& random) {
    for (int i = 0; i < cases(20'000); ++i) {
      const auto text = random.one_in(2) ? mutated(random, texts) : random.bytes(random.below(40));
      JsonWriter writer;
      writer.value(text);
      const auto read = json::parse(writer.text(), nullptr, false);
      expect(read.is_string(), shown(text) + " became " + shown(writer.text()));
      expect(!is_utf8(text) || read == text, shown(text) + " became " + shown(read.get<std::string>()));
    }
  });
}
