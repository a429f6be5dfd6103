// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/captures.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using namespace lowtide;

namespace {

const void* stream(std::size_t number) { return reinterpret_cast<const void*>(0x1000 + number * 16); }

void capture(Captures& captures, const void* which) {
  captures.begin();
  captures.began(which, true);
}

}  // namespace

TEST_CASE("a transition is refused while a stream is captured") {
  Captures captures;
  capture(captures, stream(1));
  const auto refused = captures.block();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::refused);
  CHECK(captures.ended(stream(1)));
  CHECK(captures.block());
}

TEST_CASE("a capture that could not begin does not count") {
  Captures captures;
  captures.begin();
  CHECK(captures.active() == 1);
  captures.began(stream(1), false);
  CHECK(captures.active() == 0);
  CHECK(captures.block());
}

TEST_CASE("only the end of the last capture is the last") {
  Captures captures;
  capture(captures, stream(1));
  capture(captures, stream(2));
  CHECK_FALSE(captures.ended(stream(1)));
  CHECK_FALSE(captures.ended(stream(1)));  // ended already
  CHECK(captures.ended(stream(2)));
  CHECK_FALSE(captures.ended(stream(3)));  // never began
}

TEST_CASE("more captures than there are places are counted all the same") {
  Captures captures;
  constexpr std::size_t many = 100;
  for (std::size_t i = 0; i < many; ++i) capture(captures, stream(i));
  CHECK(captures.active() == many);
  for (std::size_t i = 0; i + 1 < many; ++i) CHECK_FALSE(captures.ended(stream(i)));
  CHECK(captures.ended(stream(many - 1)));
  CHECK(captures.block());
}

TEST_CASE("a capture that begins during transitions waits until the last of them ends") {
  Captures captures;
  auto first = std::make_unique<Captures::Block>(std::move(*captures.block()));
  auto second = std::make_unique<Captures::Block>(std::move(*captures.block()));
  std::atomic<bool> over{false};
  std::atomic<bool> began_early{false};
  std::thread other([&] {
    captures.begin();
    began_early = !over;
    captures.began(stream(1), true);
  });
  first.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds{10});
  over = true;
  second.reset();
  other.join();
  CHECK_FALSE(began_early);
  CHECK(captures.active() == 1);
}

TEST_CASE("no capture waits in the child of a fork") {
  Captures captures;
  const auto block = captures.block();
  captures.abandon();
  capture(captures, stream(1));
  CHECK(captures.active() == 1);
  capture(captures, stream(2));
}
