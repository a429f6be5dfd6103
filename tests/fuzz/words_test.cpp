// SPDX-License-Identifier: Apache-2.0
// The small parsers: what they accept, they write again so that it means the same.
#include "allocator/policy/words.hpp"
#include "allocator/control/protocol.hpp"
#include "allocator/control/socket_directory.hpp"
#include "tests/catch.hpp"
#include "tests/fuzz/fuzzing.hpp"

using namespace fuzz;

namespace {

const Material requests{{"hello", "status", "pause", "pause tag=weights", "pause tag=kv_cache hold=0 timeout=1.5",
                         "resume", "resume tag=lora", "set device.wait 20s", "set tag.a.pause keep"},
                        {" ", "tag=", "hold=", "timeout=", "hold=1", "=", "pause", "set", "\n", "1e6", "nan", "-0"}};
const Material names{{"1-2.sock", "4194304-18446744073709551615.sock", "77-123456.sock"},
                     {"-", ".sock", "0", "/", "."}};
const Material durations{{"20s", "500ms", "2m", "0", "31622400s", "0m"}, {"s", "ms", "m", "0", "9", "-", " "}};
const Material tags{{"weights", "kv_cache", "A-Z_09", std::string(63, 'x'), ""}, {"_", "-", ".", " ", "x"}};

void request(const std::string& text) {
  const auto parsed = lowtide::parse_request(text);
  if (!parsed)
    return expect(parsed.error().code() == lowtide::Code::invalid && *parsed.error().message() != '\0',
                  "an error says what");
  const auto line = lowtide::format_request(*parsed);
  const auto again = lowtide::parse_request(line);
  expect(again && again->index() == parsed->index() && lowtide::format_request(*again) == line,
         "it became " + shown(line));
}

void name(const std::string& text) {
  const auto parsed = lowtide::parse_socket_name(text);
  if (!parsed) return;
  expect(parsed->pid > 0, "a PID is above 0");
  expect(lowtide::parse_socket_name(lowtide::socket_name(*parsed)) == parsed,
         "it became " + lowtide::socket_name(*parsed));
}

void duration(const std::string& text) {
  const auto parsed = lowtide::parse_duration(text);
  if (!parsed) return;
  expect(parsed->count() >= 0, "no duration is negative");
  expect(lowtide::parse_duration(std::to_string(parsed->count()) + "ms") == parsed, "it became another duration");
}

void tag(const std::string& text) {
  const auto parsed = lowtide::TagName::parse(text);
  if (parsed) expect(parsed->view() == text && !text.empty() && text.size() <= 63, "a tag is its name");
}

void play(const Material& material, void (*check)(const std::string&)) {
  for_each_seed([&](Random& random) {
    for (int i = 0; i < cases(20'000); ++i) {
      const auto text = mutated(random, material);
      try {
        check(text);
      } catch (const std::exception& error) {
        throw std::runtime_error(shown(text) + ": " + error.what());
      }
    }
  });
}

}  // namespace

TEST_CASE("a request that is accepted is written as one that means the same") { play(requests, request); }
TEST_CASE("a socket's name that is accepted names one process") { play(names, name); }
TEST_CASE("a duration that is accepted is written as the same") { play(durations, duration); }
TEST_CASE("a tag that is accepted is its name") { play(tags, tag); }
