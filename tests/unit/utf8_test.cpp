// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/utf8.hpp"

#include <string>

#include "tests/catch.hpp"

using lowtide::utf8_length;
using lowtide::utf8_prefix;

namespace {

std::string made(std::string text) {
  lowtide::make_utf8(text);
  return text;
}

}  // namespace

TEST_CASE("characters have the length that they say, and all of their bytes") {
  CHECK(utf8_length("a") == 1);
  CHECK(utf8_length("\u00e9") == 2);
  CHECK(utf8_length("\u20acx") == 3);
  CHECK(utf8_length("\U0001f30a") == 4);
  CHECK(utf8_length("\U0010ffff") == 4);
  CHECK(utf8_length("") == 0);
  CHECK(utf8_length("\xe2\x82") == 0);
}

TEST_CASE("bytes that are no characters are found, whatever they pretend") {
  for (const auto* text : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe2\x82("})
    CHECK(utf8_length(text) == 0);
}

TEST_CASE("only bytes that are no characters are replaced, one by one") {
  CHECK(made("a\xff\u00e9\xe2\x82z\xc3") == "a?\u00e9??z?");
  CHECK(made(std::string("\0\x1b", 2)) == std::string("\0\x1b", 2));
}

TEST_CASE("a text is never cut within a character") {
  const std::string text = "a\u20acb";
  CHECK(utf8_prefix(text, 0) == "");
  CHECK(utf8_prefix(text, 3) == "a");
  CHECK(utf8_prefix(text, 4) == "a\u20ac");
  CHECK(utf8_prefix(text, 9) == text);
}
