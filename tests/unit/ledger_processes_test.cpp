// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <cstdio>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/child_process.hpp"
#include "tests/unit/ledger_support.hpp"

namespace lowtide {
namespace {

using test::Child;
using test::holding;
using test::LedgerFolder;
using test::tag;

RoomNeed need(Bytes bytes) {
  return {"GPU-a", bytes, {}, [] { return 10_GiB; }};
}

/// Holds weights and has reserved 6 GiB until it is killed.
void hold(const LedgerFolder& folder, const Child::Line& line) {
  Ledger ledger(folder.path());
  if (!ledger.use("GPU-a")) ::_exit(5);
  ledger.publish(tag("engine"), {holding("weights", "GPU-a", 1_GiB)});
  const auto reservation = ledger.reserve({need(6_GiB)});
  line.say(reservation->try_grant() ? 'n' : 'y');
  line.wait();
}

void expect_gone(const LedgerFolder& folder) {
  Ledger ledger(folder.path());
  REQUIRE(ledger.use("GPU-a"));
  CHECK(ledger.others().empty());
  CHECK_FALSE(ledger.reserve({need(10_GiB)})->try_grant());
}

}  // namespace

TEST_CASE("what a killed process held and had reserved is gone with it") {
  const LedgerFolder folder;
  Ledger watcher(folder.path());
  REQUIRE(watcher.use("GPU-a"));
  Child child([&](const Child::Line& line) { hold(folder, line); });
  REQUIRE(child.hear() == 'y');
  CHECK(watcher.others().size() == 1);
  CHECK(watcher.reserve({need(5_GiB)})->try_grant());
  child.kill();
  CHECK(watcher.others().empty());
  expect_gone(folder);
}

TEST_CASE("a table whose last user was killed is used, and removed, by the next") {
  const LedgerFolder folder;
  {
    Child child([&](const Child::Line& line) { hold(folder, line); });
    REQUIRE(child.hear() == 'y');
  }
  CHECK(folder.exists());
  expect_gone(folder);
  CHECK_FALSE(folder.exists());
}

TEST_CASE("a fork child is nobody in the ledger, and does not keep its parent alive there") {
  const LedgerFolder folder;
  Ledger watcher(folder.path());
  REQUIRE(watcher.use("GPU-a"));
  int grandchild_pipe[2];
  REQUIRE(::pipe(grandchild_pipe) == 0);
  Child child([&](const Child::Line& line) {
    Ledger ledger(folder.path());
    if (!ledger.use("GPU-a")) ::_exit(5);
    ledger.publish({}, {holding("weights", "GPU-a", 1_GiB)});
    if (::fork() == 0) {
      ledger.abandon_in_child();
      ::close(grandchild_pipe[1]);
      char letter = 0;
      [[maybe_unused]] const auto n = ::read(grandchild_pipe[0], &letter, 1);  // until the test ends
      ::_exit(0);
    }
    line.say('y');
    line.wait();
  });
  REQUIRE(child.hear() == 'y');
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  CHECK(watcher.others().size() == 1);
  child.kill();
  CHECK(watcher.others().empty());
  ::close(grandchild_pipe[0]);
  ::close(grandchild_pipe[1]);
}

TEST_CASE("a process of another PID namespace is heard, and its death is seen") {
  const LedgerFolder folder;
  Ledger watcher(folder.path());
  REQUIRE(watcher.use("GPU-a"));
  Child outside([&](const Child::Line& line) {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      line.say('s');
      return;
    }
    Child inside([&](const Child::Line& inner) { hold(folder, inner); });
    line.say(inside.hear());
    line.wait();
    inside.kill();
    line.say('k');
    line.wait();
  });
  const char answer = outside.hear();
  if (answer == 's') {
    std::puts("skipped: this process may not make a PID namespace");
    return;
  }
  REQUIRE(answer == 'y');
  const auto heard = watcher.others();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].pid == 1);
  outside.tell();
  REQUIRE(outside.hear() == 'k');
  CHECK(watcher.others().empty());
}

TEST_CASE("a process that is stopped keeps its room, and stops nobody else") {
  const LedgerFolder folder;
  Ledger watcher(folder.path());
  REQUIRE(watcher.use("GPU-a"));
  Child child([&](const Child::Line& line) { hold(folder, line); });
  REQUIRE(child.hear() == 'y');
  child.stop();
  CHECK(watcher.others().size() == 1);
  CHECK_FALSE(watcher.reserve({need(4_GiB)})->try_grant());
  CHECK(watcher.reserve({need(5_GiB)})->try_grant());
}

}  // namespace lowtide
