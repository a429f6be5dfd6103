// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/right_of_way.hpp"

#include <atomic>
#include <future>
#include <optional>

#include "tests/catch.hpp"

using namespace lowtide;

TEST_CASE("whoever gives way to nobody goes at once") {
  RightOfWay way;
  { const RightOfWay::Pass gone(way); }
  way.give_way();
  SUCCEED();
}

TEST_CASE("whoever gives way goes on when the last one has passed, and when they never end") {
  RightOfWay way;
  std::optional<RightOfWay::Pass> first(std::in_place, way);
  const RightOfWay::Pass second(way);
  auto waiting = std::async(std::launch::async, [&] { way.give_way(); });
  first.reset();
  CHECK(waiting.wait_for(std::chrono::seconds{20}) == std::future_status::ready);
}
