// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/host_row.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/child_process.hpp"
#include "tests/unit/fake_machine.hpp"

using namespace lowtide;
using lowtide::test::Child;
using lowtide::test::Machine;
namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds a_moment{50};
constexpr std::chrono::seconds long_enough{60};

auto within(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

bool nobody_is_seen(const std::string& directory) {
  HostRow row;
  REQUIRE(row.open(directory));
  const auto others = row.others();
  return others.held == Bytes{} && others.coming == Bytes{} && others.holders == 0 && others.awaiting == 0 &&
         row.lock(within({}));
}

// The number of this process's descriptor of `directory`.
int descriptor_of(const std::string& directory) {
  struct stat wanted {};
  REQUIRE(::stat(directory.c_str(), &wanted) == 0);
  for (int fd = 3; fd < 1000; ++fd) {
    struct stat found {};
    if (::fstat(fd, &found) == 0 && found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino) return fd;
  }
  return -1;
}

}  // namespace

TEST_CASE("each sees what the others hold and await, and not itself") {
  const Machine machine;
  HostRow a;
  HostRow b;
  HostRow c;
  REQUIRE(a.open(machine.root));
  REQUIRE(b.open(machine.root));
  REQUIRE(c.open(machine.root));
  REQUIRE(a.publish({20_GiB, 5_GiB}));
  REQUIRE(b.publish({3_GiB, {}}));
  CHECK(a.others().held == 3_GiB);
  CHECK(a.others().awaiting == 0);
  CHECK(c.others().held == 23_GiB);
  CHECK(c.others().holders == 2);
  CHECK(c.others().coming == 5_GiB);
  CHECK(c.others().awaiting == 1);
  REQUIRE(a.publish({1_GiB, Bytes{1}}));
  CHECK(c.others().held == 4_GiB);
  CHECK(c.others().coming == Bytes{1});
  a.close();
  CHECK(c.others().held == 3_GiB);
  CHECK(c.others().holders == 1);
}

TEST_CASE("another directory is another row") {
  const Machine machine;
  HostRow a;
  HostRow b;
  REQUIRE(a.open(machine.root));
  REQUIRE(b.open(machine.root + "/proc"));
  REQUIRE(a.publish({1_GiB, 1_GiB}));
  CHECK(b.others().held == Bytes{});
  REQUIRE(b.open(machine.root));
  CHECK(b.others().held == 1_GiB);
}

TEST_CASE("whatever rows do in any order, each sees the sum of the others") {
  const Machine machine;
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto size = [&] { return Bytes{below(4) == 0 ? 0 : random() >> (24 + below(40))}; };
  constexpr std::size_t count = 12;
  std::array<HostRow, count> rows;
  std::array<HostRow::Share, count> model{};
  for (auto& row : rows) REQUIRE(row.open(machine.root));
  for (int step = 0; step < 3000; ++step) {
    const auto i = below(count);
    if (below(8) == 0) {
      rows[i].close();
      REQUIRE(rows[i].open(machine.root));
      model[i] = {};
    } else {
      model[i] = {size(), size()};
      REQUIRE(rows[i].publish(model[i]));
    }
    HostRow::Others expected;
    const auto watcher = below(count);
    for (std::size_t k = 0; k < count; ++k) {
      if (k == watcher) continue;
      expected.held += model[k].held;
      expected.coming += model[k].coming;
      expected.holders += model[k].held.value > 0 ? 1 : 0;
      expected.awaiting += model[k].coming.value > 0 ? 1 : 0;
    }
    const auto seen = rows[watcher].others();
    REQUIRE(seen.held == expected.held);
    REQUIRE(seen.coming == expected.coming);
    REQUIRE(seen.holders == expected.holders);
    REQUIRE(seen.awaiting == expected.awaiting);
  }
}

TEST_CASE("the shares of a hundred processes add up, and end with them") {
  const Machine machine;
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    children.push_back(std::make_unique<Child>([&machine, i](const Child::Line& line) {
      HostRow row;
      const bool done = row.open(machine.root) && row.publish({Bytes{i << 30}, Bytes{i}});
      line.say(done ? 'y' : 'n');
      line.wait();
    }));
  }
  for (const auto& child : children) REQUIRE(child->hear() == 'y');
  HostRow row;
  REQUIRE(row.open(machine.root));
  CHECK(row.others().held == 5050_GiB);
  CHECK(row.others().coming == Bytes{5050});
  CHECK(row.others().holders == 100);
  CHECK(row.others().awaiting == 100);
  children.clear();
  CHECK(nobody_is_seen(machine.root));
}

TEST_CASE("a process that is killed in any state leaves neither a share nor a lock nor a file") {
  const Machine machine;
  std::mt19937 random(std::random_device{}());
  const auto files = std::distance(fs::recursive_directory_iterator(machine.root), {});
  for (int round = 0; round < 200; ++round) {
    Child child([&machine](const Child::Line& line) {
      line.say('y');
      for (std::uint64_t i = 0;; ++i) {
        HostRow row;
        row.open(machine.root);
        row.lock(within(long_enough));
        row.publish({Bytes{i}, Bytes{i / 2}});
        row.publish({Bytes{i / 3}, Bytes{2 * i}});
        if (i % 2 == 0) row.unlock();
      }
    });
    REQUIRE(child.hear() == 'y');
    ::usleep(static_cast<useconds_t>(random() % 2000));
    child.kill();
    REQUIRE(nobody_is_seen(machine.root));
  }
  CHECK(std::distance(fs::recursive_directory_iterator(machine.root), {}) == files);
}

TEST_CASE("a fork child that abandons the row, or runs another program, does not keep its parent's share and lock") {
  const Machine machine;
  enum class Way : int { keeps, abandons, runs_another_program };
  for (const auto way : {Way::keeps, Way::abandons, Way::runs_another_program}) {
    CAPTURE(static_cast<int>(way));
    auto* const grandchild =
        static_cast<pid_t*>(::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    Child parent([&](const Child::Line& line) {
      HostRow row;
      if (!row.open(machine.root) || !row.publish({1_GiB, 1_GiB}) || !row.lock(within({}))) ::_exit(1);
      if (way == Way::runs_another_program) {
        std::array<char*, 3> arguments{const_cast<char*>("sleep"), const_cast<char*>("1000"), nullptr};
        // Returns when the other program runs.
        if (::posix_spawn(grandchild, "/bin/sleep", nullptr, nullptr, arguments.data(), environ) != 0) ::_exit(1);
        line.say('y');
      } else if (const auto pid = ::fork(); pid == 0) {
        if (way == Way::abandons) row.abandon_in_child();
        line.say('y');
        for (;;) ::pause();
      } else {
        *grandchild = pid;
      }
      line.say('y');
      line.wait();
    });
    REQUIRE(parent.hear() == 'y');
    REQUIRE(parent.hear() == 'y');
    parent.kill();
    HostRow row;
    REQUIRE(row.open(machine.root));
    // A program that was just started closes what it inherits a moment after its starter goes on.
    CHECK(row.lock(within(way == Way::keeps ? std::chrono::milliseconds{0} : long_enough)) == (way != Way::keeps));
    CHECK((row.others().held == Bytes{}) == (way != Way::keeps));
    ::kill(*grandchild, SIGKILL);  // nobody here can wait for it, but for what it locks
    REQUIRE(row.lock(within(long_enough)));
    ::munmap(grandchild, sizeof(pid_t));
  }
}

TEST_CASE("a stopped process that holds the lock keeps nobody for longer than he wants to wait") {
  const Machine machine;
  Child child([&](const Child::Line& line) {
    HostRow row;
    const bool done = row.open(machine.root) && row.publish({1_GiB, 1_MiB}) && row.lock(within({}));
    line.say(done ? 'y' : 'n');
    line.wait();
  });
  REQUIRE(child.hear() == 'y');
  child.stop();
  HostRow row;
  REQUIRE(row.open(machine.root));
  CHECK_FALSE(row.lock(within(a_moment)));
  CHECK(row.publish({2_GiB, {}}));
  CHECK(row.others().held == 1_GiB);
  child.kill();
  CHECK(row.lock(within({})));
  CHECK(row.others().held == Bytes{});
}

TEST_CASE("where no directory can be had nothing is seen and nothing waits") {
  HostRow row;
  CHECK_FALSE(row.open("/nonexistent"));
  CHECK_FALSE(row.is_open());
  CHECK(row.lock(within({})));
  CHECK_FALSE(row.publish({1_GiB, {}}));
  CHECK(row.others().holders == 0);
  row.unlock();
  row.abandon_in_child();
}

TEST_CASE("a descriptor that the host has closed and opened anew is left alone, and the row is opened again") {
  const Machine machine;
  HostRow row;
  REQUIRE(row.open(machine.root));
  const int fd = descriptor_of(machine.root);
  REQUIRE(fd >= 0);
  CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  machine.put("/a", "the host's");
  REQUIRE(::close(fd) == 0);
  CHECK_FALSE(row.is_open());
  REQUIRE(::open((machine.root + "/a").c_str(), O_RDONLY | O_CLOEXEC) == fd);
  CHECK_FALSE(row.is_open());
  CHECK_FALSE(row.publish({1_GiB, {}}));
  REQUIRE(row.open(machine.root));
  CHECK(row.publish({1_GiB, {}}));
  HostRow other;
  REQUIRE(other.open(machine.root));
  CHECK(other.others().held == 1_GiB);
  CHECK(::fcntl(fd, F_GETFD) >= 0);
  ::close(fd);
}
