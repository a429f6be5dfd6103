// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/host_budget_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
using namespace std::chrono_literals;

TEST_CASE("what the host has not available is refused, with the numbers") {
  Machine machine;
  machine.put("/dev/shm/other", "");
  HostBudget budget(machine.root, no_patience);
  const auto message = refusal(budget, 2_GiB);
  CHECK(contains(message, "needs 2.01 GiB more host memory and MemAvailable (1.00 GiB) leaves 1.00 GiB"));
  CHECK(contains(message, "other processes (0) hold 0 B"));
  CHECK(contains(message, "lowtide trim"));
  CHECK(budget.held() == Bytes{});
  CHECK(budget.reserve(1000_MiB));
}

TEST_CASE("the limit of an ancestor refuses, and the message names its file and who holds what") {
  const LimitedMachine machine(10_GiB);
  HostBudget other(machine.root, no_patience);
  auto held = other.reserve(6_GiB);
  REQUIRE(held);
  held->touched(2_GiB);
  machine.use(2_GiB);
  HostBudget budget(machine.root, no_patience);
  const auto message = refusal(budget, 5_GiB);
  CHECK(contains(message, "/sys/fs/cgroup/job/memory.max (10.0 GiB) leaves 3.98 GiB"));
  CHECK(contains(message, "other processes (1) hold 6.00 GiB, 4.02 GiB of it to come"));
  CHECK(contains(message, "raise the limit"));
  CHECK(budget.reserve(3_GiB));
}

TEST_CASE("memory.high refuses as memory.max does, and file cache is free") {
  const LimitedMachine machine(10_GiB);
  machine.put("/sys/fs/cgroup/job/memory.high", std::to_string((2_GiB).value));
  machine.use(1_GiB);
  HostBudget budget(machine.root, no_patience);
  CHECK(contains(refusal(budget, 1_GiB), "memory.high (2.00 GiB) leaves 1.00 GiB"));
  machine.put("/sys/fs/cgroup/job/memory.stat", "inactive_file 536870912\nactive_file 536870912\n");
  CHECK(budget.reserve(1_GiB));
}

TEST_CASE("the longest path leaves the whole message readable") {
  Machine machine;
  machine.put("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  machine.put("/proc/self/cgroup", "0::/" + std::string(200, 'k') + "/step\n");
  machine.put_group("/sys/fs/cgroup/" + std::string(200, 'k') + "/step", "4096", "max", "0");
  HostBudget budget(machine.root, no_patience);
  const auto message = refusal(budget, 1000_MiB);
  CHECK(contains(message, "kkk/step/memory.max (4.00 KiB) leaves"));
  CHECK(message.ends_with("raise the limit"));
}

TEST_CASE("host.budget bounds what all processes hold together, touched or not") {
  const LimitedMachine machine(60_GiB);
  HostBudget a(machine.root, no_patience);
  HostBudget b(machine.root, no_patience);
  a.set_budget(10_GiB);
  b.set_budget(10_GiB);
  {
    auto reservation = a.reserve(6_GiB);
    REQUIRE(reservation);
    reservation->touched(6_GiB);
  }
  CHECK(a.held() == 6_GiB);
  CHECK(contains(refusal(b, 5_GiB), "needs 5.00 GiB more host memory and host.budget (10.0 GiB) leaves 4.00 GiB"));
  CHECK(contains(refusal(a, 5_GiB), "leaves 4.00 GiB; this process holds 6.00 GiB for backups, other processes (0)"));
  a.release_held(1_GiB);
  CHECK(b.reserve(5_GiB));
  b.set_budget(Bytes{0});
  refusal(b, Bytes{1});
  b.set_budget(std::nullopt);
  CHECK(b.reserve(6_GiB));
}

TEST_CASE("a reservation that ends gives back what was not touched, and only that") {
  const LimitedMachine machine(60_GiB);
  HostBudget budget(machine.root, no_patience);
  {
    auto reservation = budget.reserve(8_GiB);
    REQUIRE(reservation);
    CHECK(budget.held() == 8_GiB);
    reservation->touched(3_GiB);
    CHECK(reservation->coming() == 5_GiB);
    HostReservation moved;
    moved = std::move(*reservation);
    CHECK(moved.coming() == 5_GiB);
    moved.touched(1_GiB);
  }
  CHECK(budget.held() == 4_GiB);
  {
    auto reservation = budget.reserve(1_GiB);
    reservation->touched(9_GiB);
    CHECK(reservation->coming() == Bytes{});
  }
  CHECK(budget.held() == 5_GiB);
  budget.release_held(9_GiB);
  CHECK(budget.held() == Bytes{});
  CHECK(budget.reserve({})->coming() == Bytes{});
}

TEST_CASE("a need beyond all numbers is refused") {
  const LimitedMachine machine(60_GiB);
  HostBudget budget(machine.root, all_patience);
  refusal(budget, Bytes{~std::uint64_t{0}});
  CHECK(budget.held() == Bytes{});
}

TEST_CASE("bytes that are counted twice for a moment refuse nobody") {
  const LimitedMachine machine(10_GiB);
  HostBudget other(machine.root, no_patience);
  auto promised = other.reserve(5_GiB);
  REQUIRE(promised);
  machine.use(5_GiB);  // touched, and not reported yet
  HostBudget budget(machine.root, all_patience);
  std::thread reporter([&] {
    std::this_thread::sleep_for(30ms);
    promised->touched(5_GiB);
  });
  const auto reservation = budget.reserve(4_GiB);
  reporter.join();
  CHECK(reservation);
}

TEST_CASE("those that take memory now are counted, those that hold it are not") {
  const LimitedMachine machine(60_GiB);
  HostBudget a(machine.root, no_patience);
  HostBudget b(machine.root, no_patience);
  HostBudget c(machine.root, no_patience);
  CHECK(a.pausing_processes() == 1);
  auto of_a = a.reserve(1_GiB);
  auto of_b = b.reserve(1_GiB);
  auto of_c = c.reserve(1_GiB);
  CHECK(a.pausing_processes() == 3);
  of_c->touched(1_GiB);
  CHECK(a.pausing_processes() == 2);
  of_b->touched(1_GiB);
  CHECK(a.pausing_processes() == 1);
  CHECK(c.pausing_processes() == 2);
}

TEST_CASE("without any directory to lock, a process still goes by the limits and its own promises") {
  Machine machine;  // has neither /dev/shm nor /tmp
  HostBudget budget(machine.root, no_patience);
  auto first = budget.reserve(600_MiB);
  REQUIRE(first);
  refusal(budget, 600_MiB);
  CHECK(budget.pausing_processes() == 1);
  CHECK(budget.reserve(400_MiB));
}

TEST_CASE("on a machine that tells nothing only the budget bounds") {
  HostBudget budget("/nonexistent", no_patience);
  CHECK(budget.reserve(1024_GiB));
  budget.set_budget(1_GiB);
  refusal(budget, 2_GiB);
}

TEST_CASE("a limit that appears later finds what was promised before") {
  const LimitedMachine machine(60_GiB);
  HostBudget a(machine.root, no_patience);
  HostBudget b(machine.root, no_patience);
  auto of_a = a.reserve(5_GiB);
  REQUIRE(of_a);
  machine.put_group("/sys/fs/cgroup/job/step", std::to_string((8_GiB).value), "max", "0");
  auto more_of_a = a.reserve(1_GiB);
  REQUIRE(more_of_a);
  CHECK(contains(refusal(b, 3_GiB),
                 "step/memory.max (8.00 GiB) leaves 1.98 GiB; this process holds 0 B for backups, other processes (1) "
                 "hold 6.00 GiB"));
}

TEST_CASE("whatever several processes do in any order, a reservation is made if and only if it fits") {
  const auto limit = 40_GiB;
  const auto bound = 35_GiB;
  const LimitedMachine machine(limit);
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  struct Member {
    std::unique_ptr<HostBudget> budget;
    HostReservation reservation;
    Bytes touched;
    Bytes coming;
  };
  std::array<Member, 5> members;
  const auto begin = [&](Member& member) {
    member.reservation = {};
    member.budget = std::make_unique<HostBudget>(machine.root, no_patience);
    member.budget->set_budget(bound);
    member.touched = member.coming = {};
  };
  for (auto& member : members) begin(member);
  int made = 0;
  int refused = 0;
  for (int step = 0; step < 1500; ++step) {
    auto& member = members[below(members.size())];
    Bytes used;
    Bytes coming;
    Bytes held;
    for (const auto& each : members) {
      used += each.touched;
      coming += room_for(each.coming);
      held += each.touched + each.coming;
    }
    machine.use(used);
    const Bytes size{below(12ULL << 30)};
    switch (below(5)) {
      case 0:
      case 1: {
        member.reservation = {};  // one at a time
        coming -= room_for(member.coming);
        held -= member.coming;
        member.coming = {};
        const bool fits = used + coming + room_for(size) <= limit && held + size <= bound;
        auto result = member.budget->reserve(size);
        REQUIRE(result.has_value() == fits);
        (fits ? made : refused) += 1;
        if (!fits) break;
        member.reservation = std::move(*result);
        member.coming = size;
        break;
      }
      case 2: {
        const auto part = std::min(size, member.coming);
        member.reservation.touched(part);
        member.touched += part;
        member.coming -= part;
        break;
      }
      case 3: {
        const auto part = std::min(size, member.touched);
        member.budget->release_held(part);
        member.touched -= part;
        break;
      }
      default:
        if (below(8) == 0) begin(member);
    }
    REQUIRE(member.budget->held() == member.touched + member.coming);
  }
  CHECK(made > 50);
  CHECK(refused > 50);
}

TEST_CASE("threads of one process reserve, touch and give back at once without losing a byte") {
  const LimitedMachine machine(60_GiB);
  HostBudget budget(machine.root, all_patience);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&budget] {
      for (int round = 0; round < 50; ++round) {
        auto reservation = budget.reserve(64_MiB);
        std::thread toucher([&] { reservation->touched(16_MiB); });
        reservation->touched(16_MiB);
        toucher.join();
        budget.release_held(16_MiB);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(budget.held() == 16_MiB * 200);
  CHECK(budget.pausing_processes() == 1);
  HostRow row;
  REQUIRE(row.open(machine.root + "/sys/fs/cgroup/job"));
  CHECK(row.others().held == 16_MiB * 200);
  CHECK(row.others().coming == Bytes{});
}
