// SPDX-License-Identifier: Apache-2.0
// Processes reserve, take and give back a pretended device's memory by the ledger, and are killed at whatever
// instruction they are. LOWTIDE_TEST_LONG=1: ten times as many, 10,000. LOWTIDE_TEST_SEED=N: other choices.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/ledger_support.hpp"

namespace lowtide {
namespace {

using namespace std::chrono_literals;
using test::holding;
using test::LedgerFolder;
using test::tag;

constexpr std::size_t players = 5;
constexpr std::uint64_t capacity = 1000;
const std::array<std::string, 2> keys{"GPU-a", "GPU-b"};

/// What the driver knows, shared by all players: who has how much of which device.
struct Devices {
  std::array<std::array<std::atomic<std::uint64_t>, 2>, players> share;
  std::atomic<std::uint64_t> overcommitted;
  std::atomic<std::uint64_t> granted;

  std::uint64_t used(std::size_t device) const {
    std::uint64_t sum = 0;
    for (const auto& each : share) sum += each[device].load();
    return sum;
  }
  Bytes free(std::size_t device) const {
    const auto now = used(device);
    return {now > capacity ? 0 : capacity - now};
  }
};

Devices& shared_devices() {
  void* const memory = ::mmap(nullptr, sizeof(Devices), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return *new (memory) Devices;
}

/// One process's life: it ends when it is killed, or of itself after some rounds.
class Player {
 public:
  Player(const LedgerFolder& folder, Devices& devices, std::size_t number, std::uint64_t seed)
      : ledger_(folder.path()), devices_(devices), share_(devices.share[number]), random_(seed) {}

  void play() {
    for (const auto& key : keys) (void)ledger_.use(key);
    for (int round = 0; round < 50; ++round) {
      switch (below(4)) {
        case 0: say(); break;
        case 1: wait_for_somebody(); break;
        default: reserve();
      }
    }
    for (auto& share : share_) share.store(0);
    if (below(2) == 0) ledger_.leave();
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  void say() {
    Holdings own;
    for (std::size_t device = 0; device < keys.size(); ++device)
      own.push_back(holding("weights", keys[device], {share_[device].load()}));
    ledger_.publish(tag("engine"), own);
  }

  void wait_for_somebody() {
    const auto others = ledger_.others();
    if (others.empty()) return;
    ledger_.wait_for(Waiting{tag("weights"), {{others[0].instance, others[0].tag}}, Ledger::draw_ticket()});
    (void)ledger_.circle();
    ledger_.wait_for({});
  }

  void reserve() {
    std::vector<RoomNeed> needs;
    for (std::size_t device = 0; device < keys.size(); ++device) {
      if (below(3) == 0) continue;
      needs.push_back({keys[device], {1 + below(capacity / 2)}, {}, [this, device] { return devices_.free(device); }});
    }
    const auto wanted = needs;
    const auto reservation = ledger_.reserve(std::move(needs));
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{below(20)};
    while (const auto shortage = reservation->try_grant()) {
      if (std::chrono::steady_clock::now() >= until) return;
      ledger_.wait_for_change(shortage->device, ledger_.change(shortage->device), until);
    }
    ++devices_.granted;
    for (const auto& need : wanted) take(*reservation, need);
  }

  /// Piece by piece, as a resume does.
  void take(Reservation& reservation, const RoomNeed& need) {
    const std::size_t device = need.device == keys[0] ? 0 : 1;
    for (auto left = need.bytes.value; left > 0;) {
      const auto piece = std::min(left, 1 + below(100));
      share_[device] += piece;
      if (devices_.used(device) > capacity) ++devices_.overcommitted;
      reservation.realised(need.device, {piece});
      left -= piece;
    }
    if (below(3) != 0) share_[device].store(0);
    ledger_.wake();
  }

  Ledger ledger_;
  Devices& devices_;
  std::array<std::atomic<std::uint64_t>, 2>& share_;
  std::mt19937_64 random_;
};

/// A child, in a PID namespace of its own if asked for; -1 if that is not allowed.
pid_t start(bool in_namespace, const LedgerFolder& folder, Devices& devices, std::size_t number, std::uint64_t seed) {
  const auto flags =
      static_cast<unsigned long>(SIGCHLD) | (in_namespace ? static_cast<unsigned long>(CLONE_NEWPID) : 0);
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr));
  if (pid != 0) return pid;
  Player(folder, devices, number, seed).play();
  ::_exit(0);
}

class Game {
 public:
  Game(const LedgerFolder& folder, Devices& devices, std::uint64_t seed)
      : folder_(folder), devices_(devices), random_(seed) {
    const auto probe = start(true, folder, devices, 0, 0);
    may_have_namespaces_ = probe > 0;
    if (probe > 0) ::waitpid(probe, nullptr, 0);
    if (probe < 0) std::puts("skipped: this process may not make PID namespaces");
  }

  void play(int kills) {
    std::array<pid_t, players> pids{};
    for (std::size_t i = 0; i < players; ++i) pids[i] = next(i);
    for (int killed = 0; killed < kills;) {
      std::this_thread::sleep_for(std::chrono::microseconds{random_() % 800});
      const auto i = random_() % players;
      ::kill(pids[i], SIGKILL);
      int status = 0;
      REQUIRE(::waitpid(pids[i], &status, 0) == pids[i]);
      if (WIFSIGNALED(status)) REQUIRE(WTERMSIG(status) == SIGKILL);
      if (WIFSIGNALED(status)) ++killed;
      for (auto& share : devices_.share[i]) share.store(0);  // the driver has it back
      pids[i] = next(i);
    }
    for (std::size_t i = 0; i < players; ++i) {
      ::kill(pids[i], SIGKILL);
      ::waitpid(pids[i], nullptr, 0);
      for (auto& share : devices_.share[i]) share.store(0);
    }
  }

 private:
  pid_t next(std::size_t number) {
    const bool in_namespace = may_have_namespaces_ && random_() % 8 == 0;
    const auto pid = start(in_namespace, folder_, devices_, number, random_());
    REQUIRE(pid > 0);
    return pid;
  }

  const LedgerFolder& folder_;
  Devices& devices_;
  std::mt19937_64 random_;
  bool may_have_namespaces_ = false;
};

}  // namespace

TEST_CASE("processes that are killed at any moment leave a ledger that gives all room, and never more than there is") {
  const char* const chosen = std::getenv("LOWTIDE_TEST_SEED");
  const int kills = std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 10'000 : 1'000;
  const LedgerFolder folder;
  auto& devices = shared_devices();
  Game(folder, devices, chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1).play(kills);
  CHECK(devices.overcommitted == 0);
  CHECK(devices.granted > static_cast<std::uint64_t>(kills) / 10);
  {
    Ledger survivor(folder.path());
    for (const auto& key : keys) REQUIRE(survivor.use(key));
    CHECK(survivor.others().empty());
    const auto all = [](std::size_t) { return Bytes{capacity}; };
    CHECK_FALSE(survivor
                    .reserve({{keys[0], {capacity}, {}, [&] { return all(0); }},
                              {keys[1], {capacity}, {}, [&] { return all(1); }}})
                    ->try_grant());
  }
  CHECK_FALSE(folder.exists());
}

}  // namespace lowtide
