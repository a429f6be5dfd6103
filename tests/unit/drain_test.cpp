// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/drain.hpp"

#include <signal.h>

#include <future>
#include <new>

#include "tests/catch.hpp"

using namespace lowtide;
using namespace std::chrono_literals;

namespace {

auto in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

}  // namespace

TEST_CASE("a wait answers what the device answered") {
  Drain drain;
  CHECK(drain.wait([] { return Status{}; }, in(5min)));
  const auto failed = drain.wait([]() -> Status { return fail(Code::driver, "broken"); }, in(5min));
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code() == Code::driver);
  CHECK(drain.wait([] { return Status{}; }, in(5min)));
}

TEST_CASE("a device that does not come to rest in time makes a wait busy, and the next one joins it") {
  Drain drain;
  std::promise<void> rest;
  const auto resting = rest.get_future().share();
  const auto slowly = [resting] {
    resting.wait();
    return Status{};
  };
  std::atomic<int> calls{0};
  const auto count = [&calls] {
    ++calls;
    return Status{};
  };
  CHECK(drain.wait(slowly, in(5ms)).error().code() == Code::busy);
  CHECK(drain.wait(count, in(5ms)).error().code() == Code::busy);
  CHECK(calls == 0);  // one call at a time waits for the device
  rest.set_value();
  CHECK(drain.wait(count, in(5min)));
  CHECK(calls == 1);
}

TEST_CASE("a call that throws is an error, and the process lives") {
  Drain drain;
  const auto status = drain.wait([]() -> Status { throw std::bad_alloc(); }, in(5min));
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::host_budget);
  CHECK(drain.wait([] { return Status{}; }, in(5min)));
}

TEST_CASE("the thread that waits takes no signal of the host, and the caller keeps its mask") {
  Drain drain;
  sigset_t there;
  const auto look = [&there] {
    pthread_sigmask(SIG_SETMASK, nullptr, &there);
    return Status{};
  };
  REQUIRE(drain.wait(look, in(5min)));
  CHECK(sigismember(&there, SIGTERM) == 1);
  CHECK(sigismember(&there, SIGINT) == 1);
  sigset_t here;
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  CHECK(sigismember(&here, SIGTERM) == 0);
}
