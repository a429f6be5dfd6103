// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/toml_text.hpp"

#include "tests/catch.hpp"

using lowtide::stray_non_ascii;

TEST_CASE("characters that are not ASCII belong in strings and comments") {
  for (const char* fine :
       {"", "a = 1", "a = \"\xc3\xa9\" # \xc3\xa9\nb = '\xc3\xa9'", "\xef\xbb\xbfx = 1", "a = \"\"\"\n\xc3\xa9\n\"\"\"",
        "a = '''\n\xc3\xa9'\n'''\nb = 1", "a = \"\\\"\xc3\xa9\"", "a = \"\"\"\xc3\xa9\"\"\"\"\nb = '\xc3\xa9'"}) {
    INFO(fine);
    CHECK_FALSE(stray_non_ascii(fine));
  }
}

TEST_CASE("a stray character that is not ASCII is found with its line") {
  CHECK(stray_non_ascii("\xc3\xa9") == 1U);
  CHECK(stray_non_ascii("a = 1\n\xc3\xa9 = 2") == 2U);
  CHECK(stray_non_ascii("a = \"x\"\xc3\xa9") == 1U);
  CHECK(stray_non_ascii("a = \"\"\"\n\n\"\"\"\n\xc2\xa1") == 4U);
  CHECK(stray_non_ascii("a = \"not closed\n\xc3\xa9") == 2U);
  CHECK(stray_non_ascii("# comment\n\xc3\xa9") == 2U);
  CHECK(stray_non_ascii("a = \"\"\xc3\xa9\"\"") == 1U);
}
