// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/gate.hpp"

#include <future>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using namespace lowtide;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

auto far() { return Clock::now() + 5min; }
bool is_ready(const std::future<void>& future) { return future.wait_for(0s) == std::future_status::ready; }

}  // namespace

TEST_CASE("close waits for who is inside") {
  Gate gate;
  auto* const visitor = gate.add_visitor();
  (void)gate.enter(visitor);
  std::promise<void> about_to_leave;
  std::atomic<bool> left{false};
  std::thread inside([&] {
    about_to_leave.get_future().wait();
    left = true;
    gate.leave(visitor);
  });
  CHECK(gate.close(Clock::now() + 5ms).error().code() == Code::busy);
  CHECK(gate.closed());
  about_to_leave.set_value();
  REQUIRE(gate.close(far()));
  CHECK(left);
  inside.join();
}

TEST_CASE("who arrives at a closed gate waits until it is opened") {
  Gate gate;
  REQUIRE(gate.close(far()));
  std::atomic<bool> opened{false};
  std::atomic<bool> passed_early{false};
  const auto arrive = [&](bool listed) {
    auto* const visitor = listed ? gate.add_visitor() : nullptr;
    (void)gate.enter(visitor);
    if (!opened) passed_early = true;
    gate.leave(visitor);
  };
  std::vector<std::future<void>> visits;
  for (const bool listed : {true, true, false}) visits.push_back(std::async(std::launch::async, arrive, listed));
  visits.push_back(std::async(std::launch::async, [&] {
    gate.wait_until_open();
    if (!opened) passed_early = true;
  }));
  std::this_thread::sleep_for(20ms);
  for (const auto& visit : visits) CHECK_FALSE(is_ready(visit));
  REQUIRE(gate.close(far()));  // those who wait are not inside
  opened = true;
  gate.reopen();
  for (auto& visit : visits) visit.get();
  CHECK_FALSE(passed_early);
}

TEST_CASE("a call inside a gated call passes the closed gate") {
  Gate gate;
  auto* const visitor = gate.add_visitor();
  (void)gate.enter(visitor);
  CHECK_FALSE(gate.close(Clock::now()));
  (void)gate.enter(visitor);  // would wait for itself
  gate.leave(visitor);
  CHECK_FALSE(gate.close(Clock::now()));
  gate.leave(visitor);
  CHECK(gate.close(far()));
}

TEST_CASE("threads without a place of their own are counted") {
  Gate gate;
  (void)gate.enter(nullptr);
  CHECK_FALSE(gate.close(Clock::now()));
  gate.leave(nullptr);
  CHECK(gate.close(far()));
}

TEST_CASE("a thread that gets its place while inside is counted once") {
  Gate gate;
  (void)gate.enter(nullptr);
  auto* const visitor = gate.add_visitor();
  gate.leave(visitor);
  CHECK(gate.close(far()));
}

TEST_CASE("the place of a thread that ended is used again") {
  Gate gate;
  auto* const first = gate.add_visitor();
  CHECK(gate.add_visitor() != first);
  Gate::remove_visitor(first);
  CHECK(gate.add_visitor() == first);
}

TEST_CASE("a thread that ended inside a gated call is waited for no more") {
  Gate gate;
  auto* const visitor = gate.add_visitor();
  (void)gate.enter(visitor);
  Gate::remove_visitor(visitor);
  CHECK(gate.close(far()));
  gate.reopen();
}

TEST_CASE("nobody is inside while the gate is closed, however threads come and go") {
  Gate gate;
  std::atomic<int> inside{0};
  std::atomic<bool> over{false};
  const auto visit = [&] {
    while (!over) {
      std::thread([&] {
        auto* const visitor = gate.add_visitor();
        for (int i = 0; i < 200; ++i) {
          (void)gate.enter(visitor);
          inside.fetch_add(1, std::memory_order_relaxed);
          inside.fetch_sub(1, std::memory_order_relaxed);
          gate.leave(visitor);
        }
        Gate::remove_visitor(visitor);
      }).join();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(visit);
  int seen_inside = 0;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(gate.close(far()));
    for (int look = 0; look < 100; ++look) seen_inside += inside.load();
    gate.reopen();
    std::this_thread::yield();
  }
  over = true;
  for (auto& thread : threads) thread.join();
  CHECK(seen_inside == 0);
}

TEST_CASE("a gate that was opened for good lets everybody through and is never closed again") {
  Gate gate;
  REQUIRE(gate.close(far()));
  auto waiting = std::async(std::launch::async, [&] { gate.wait_until_open(); });
  gate.open_for_good();
  waiting.get();
  CHECK(gate.close(far()).error().code() == Code::busy);
  CHECK_FALSE(gate.closed());
  (void)gate.enter(nullptr);
  gate.leave(nullptr);
}

TEST_CASE("who is closing the gate when it is opened for good does not wait for those inside") {
  Gate gate;
  auto* const visitor = gate.add_visitor();
  (void)gate.enter(visitor);
  auto closing = std::async(std::launch::async, [&] { return gate.close(far()); });
  while (!gate.closed()) std::this_thread::yield();
  gate.open_for_good();
  CHECK(closing.get().error().code() == Code::busy);
  gate.leave(visitor);
}

TEST_CASE("the child of a fork passes a gate that was closed in its parent") {
  Gate gate;
  REQUIRE(gate.close(far()));
  gate.abandon();
  auto* const visitor = gate.add_visitor();
  (void)gate.enter(visitor);
  gate.leave(visitor);
  CHECK_FALSE(gate.closed());
}

TEST_CASE("a gate that refuses sends away who comes, until it is opened; under a hold they wait for its end first") {
  Gate gate;
  auto* const visitor = gate.add_visitor();
  REQUIRE(gate.close(far()));
  std::vector<std::future<bool>> waiting;
  for (const bool listed : {true, false}) {
    waiting.push_back(std::async(std::launch::async, [&, listed] { return gate.enter(listed ? visitor : nullptr); }));
  }
  waiting.push_back(std::async(std::launch::async, [&] { return gate.wait_until_open(); }));
  gate.refuse();
  for (auto& each : waiting) CHECK(each.wait_for(std::chrono::milliseconds{20}) == std::future_status::timeout);
  gate.end_hold();
  for (auto& each : waiting) CHECK_FALSE(each.get());
  CHECK(gate.closed());
  CHECK_FALSE(gate.enter(visitor));
  CHECK_FALSE(gate.enter(nullptr));
  REQUIRE(gate.close(far()));  // nobody who was sent away is inside
  gate.end_refusal();
  CHECK(gate.closed());
  gate.reopen();
  CHECK(gate.enter(visitor));
  CHECK(gate.enter(visitor));
  gate.refuse();
  CHECK(gate.enter(visitor));  // a call of a call that is inside
  for (int i = 0; i < 3; ++i) gate.leave(visitor);
  CHECK_FALSE(gate.enter(visitor));
}
