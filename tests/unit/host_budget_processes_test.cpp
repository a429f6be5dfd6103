// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/child_process.hpp"
#include "tests/unit/host_budget_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
using namespace std::chrono_literals;

TEST_CASE("why pauses of others are not seen is said as the kernel says it") {
  const LimitedMachine machine(60_GiB);
  const bool short_of_descriptors = GENERATE(true, false);
  machine.put("/absent", "");
  int said[2];
  REQUIRE(::pipe2(said, O_CLOEXEC) == 0);
  {
    const Child child([&](const Child::Line& line) {
      ::dup2(said[1], STDERR_FILENO);
      HostBudget budget(short_of_descriptors ? machine.root : machine.root + "/absent", no_patience);
      if (short_of_descriptors) {
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_NOFILE, &none);
      }
      (void)budget.reserve(1_MiB);
      line.say('d');
    });
    REQUIRE(child.hear() == 'd');
  }
  ::close(said[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max(::read(said[0], text.data(), text.size()), ssize_t{0})));
  ::close(said[0]);
  INFO(text);
  const std::string why = short_of_descriptors ? "Too many open files" : "Not a directory";
  CHECK(contains(text, "neither /dev/shm (" + why + ") nor /tmp (" + why + ") can be"));
}

TEST_CASE("of eight processes that pause at once under a limit for five exactly three are refused") {
  const LimitedMachine machine(room_for(4_GiB) * 5 + 1_GiB);
  auto* const page =
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    const bool by_budget = round % 2 == 0;
    machine.use({});
    auto* const promised = new (page) std::atomic<int>(0);
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(std::make_unique<Child>([&machine, by_budget, promised](const Child::Line& line) {
        HostBudget budget(machine.root, all_patience);
        if (by_budget) budget.set_budget(23_GiB);
        line.say('r');
        line.wait();
        const auto reservation = budget.reserve(4_GiB);
        if (reservation) ++*promised;
        line.say(reservation ? 'y' : 'n');
        line.wait();
      }));
    }
    for (const auto& child : children) REQUIRE(child->hear() == 'r');
    for (const auto& child : children) child->tell();
    // Those that got memory touch it: once it is used those that wait have nothing to wait for.
    std::thread touching([&] {
      if (by_budget) return;
      while (*promised != 5) std::this_thread::sleep_for(1ms);
      machine.use(4_GiB * 5);
    });
    int refused = 0;
    for (const auto& child : children) {
      const char answer = child->hear();
      CHECK((answer == 'y' || answer == 'n'));
      refused += answer == 'n' ? 1 : 0;
    }
    touching.join();
    REQUIRE(refused == 3);
  }
  ::munmap(page, sizeof(std::atomic<int>));
}

TEST_CASE("a stopped process that holds the lock hangs nobody, and even then nothing is promised twice") {
  const LimitedMachine machine(10_GiB);
  Child stopped([&](const Child::Line& line) {
    HostRow row;
    line.say(row.open(machine.root + "/dev/shm") && row.lock(std::chrono::steady_clock::now()) ? 'y' : 'n');
    line.wait();
  });
  REQUIRE(stopped.hear() == 'y');
  stopped.stop();
  {
    HostBudget budget(machine.root, 20ms);
    CHECK(budget.reserve(6_GiB));
  }
  for (int round = 0; round < 30; ++round) {
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 2; ++i) {
      children.push_back(std::make_unique<Child>([&machine](const Child::Line& line) {
        HostBudget budget(machine.root, 20ms);
        line.say('r');
        line.wait();
        const auto reservation = budget.reserve(6_GiB);
        line.say(reservation ? 'y' : 'n');
        line.wait();
      }));
    }
    for (const auto& child : children) REQUIRE(child->hear() == 'r');
    for (const auto& child : children) child->tell();
    int promised = 0;
    for (const auto& child : children) promised += child->hear() == 'y' ? 1 : 0;
    REQUIRE(promised <= 1);
  }
}

TEST_CASE("a process that is killed in any state leaves all its memory to the others") {
  const LimitedMachine machine(10_GiB);
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    Child child([&machine](const Child::Line& line) {
      HostBudget budget(machine.root, no_patience);
      line.say('y');
      for (;;) {
        auto first = budget.reserve(3_GiB);
        auto second = budget.reserve(4_GiB);
        if (first) first->touched(1_GiB);
        if (second) second->touched(4_GiB);
        budget.release_held(5_GiB);
      }
    });
    REQUIRE(child.hear() == 'y');
    ::usleep(static_cast<useconds_t>(random() % 5000));
    child.kill();
    HostBudget budget(machine.root, no_patience);
    budget.set_budget(9_GiB);
    REQUIRE(budget.reserve(9_GiB));
    REQUIRE(budget.pausing_processes() == 1);
  }
}

TEST_CASE("a fork child keeps nothing alive and can do nothing") {
  const LimitedMachine machine(10_GiB);
  auto budget = std::make_unique<HostBudget>(machine.root, no_patience);
  auto reservation = budget->reserve(8_GiB);
  REQUIRE(reservation);
  reservation->touched(1_GiB);
  Child child([&](const Child::Line& line) {
    budget->abandon_in_child();
    reservation->touched(1_GiB);
    budget->release_held(1_GiB);
    const bool inert = !budget->reserve(1_MiB) && budget->pausing_processes() == 1 && budget->held() == Bytes{};
    *reservation = HostReservation{};
    line.say(inert ? 'y' : 'n');
    line.wait();
  });
  REQUIRE(child.hear() == 'y');
  HostBudget other(machine.root, no_patience);
  refusal(other, 9_GiB);
  CHECK(budget->held() == 8_GiB);
  *reservation = HostReservation{};
  CHECK(budget->held() == 1_GiB);
  budget.reset();
  other.set_budget(9_GiB);
  CHECK(other.reserve(9_GiB));
}
