// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/bytes.hpp"

#include "tests/catch.hpp"

using namespace lowtide;

TEST_CASE("sizes are told in three digits and IEC units") {
  CHECK(to_text(Bytes{0}) == "0 B");
  CHECK(to_text(Bytes{1023}) == "1023 B");
  CHECK(to_text(1_KiB) == "1.00 KiB");
  CHECK(to_text(Bytes{1536}) == "1.50 KiB");
  CHECK(to_text(2_MiB) == "2.00 MiB");
  CHECK(to_text(Bytes{10} * (1 << 20)) == "10.0 MiB");
  CHECK(to_text(300_MiB) == "300 MiB");
  CHECK(to_text(Bytes{(19ull << 30) + (1ull << 29)}) == "19.5 GiB");
  CHECK(to_text(141_GiB) == "141 GiB");
  CHECK(to_text(Bytes{1ull << 40}) == "1.00 TiB");
  CHECK(to_text(Bytes{~0ull}) == "16.0 EiB");
}

TEST_CASE("a size just below a unit is not told as 1024 of the smaller one") {
  CHECK(to_text(Bytes{(1ull << 20) - 1}) == "1.00 MiB");
  CHECK(to_text(Bytes{(1ull << 30) - 1}) == "1.00 GiB");
  CHECK(to_text(10_MiB - Bytes{1}) == "10.0 MiB");
  CHECK(to_text(100_MiB - Bytes{1}) == "100 MiB");
}

TEST_CASE("rounding up to a unit") {
  CHECK(round_up(Bytes{0}, 2_MiB) == Bytes{0});
  CHECK(round_up(Bytes{1}, 2_MiB) == 2_MiB);
  CHECK(round_up(2_MiB, 2_MiB) == 2_MiB);
  CHECK(round_up(2_MiB + Bytes{1}, 2_MiB) == 4_MiB);
  CHECK(round_up(Bytes{7}, Bytes{3}) == Bytes{9});
}
