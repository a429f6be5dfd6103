// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/json_writer.hpp"

#include <clocale>
#include <cstdint>
#include <limits>

#include "tests/catch.hpp"

using lowtide::JsonWriter;

namespace {

std::string quoted(std::string_view text) {
  JsonWriter json;
  return json.value(text).take();
}

}  // namespace

TEST_CASE("commas stand between members and elements, and nowhere else") {
  JsonWriter json;
  json.begin_object().field("a", 1).key("b").begin_array().value(1).value("x").begin_object().end_object().end_array();
  json.key("c").null().key("d").begin_array().end_array().field("e", true).key("f").raw("{\"g\":2}").end_object();
  CHECK(json.text() == R"({"a":1,"b":[1,"x",{}],"c":null,"d":[],"e":true,"f":{"g":2}})");
}

TEST_CASE("text that would break the line or the quotes is escaped") {
  CHECK(quoted("a\"b\\c\nd\re\tf") == R"("a\"b\\c\nd\re\tf")");
  CHECK(quoted(std::string_view("\0\x01\x1b\x7f", 4)) == R"("\u0000\u0001\u001b\u007f")");
}

TEST_CASE("UTF-8 is kept and what is not UTF-8 is replaced") {
  CHECK(quoted("gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80") == "\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\"");
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(quoted("\xFF") == '"' + bad + '"');
  CHECK(quoted("a\xC3") == "\"a" + bad + '"');
  CHECK(quoted("\xC0\xAF") == '"' + bad + bad + '"');
  CHECK(quoted("\xED\xA0\x80") == '"' + bad + bad + bad + '"');
  CHECK(quoted("\xE2\x82(") == '"' + bad + bad + "(\"");
}

TEST_CASE("numbers keep all their digits and ask no locale") {
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  JsonWriter json;
  json.begin_array().value(std::numeric_limits<std::uint64_t>::max()).value(std::numeric_limits<std::int64_t>::min());
  json.value(0.25).value(1e300).value(std::numeric_limits<double>::infinity()).value(std::nan(""));
  json.value(lowtide::Bytes{4096}).end_array();
  CHECK(json.text() == "[18446744073709551615,-9223372036854775808,0.25,1e+300,null,null,4096]");
  std::setlocale(LC_ALL, "C");
}
