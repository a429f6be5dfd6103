// SPDX-License-Identifier: Apache-2.0
// What must be true after every kill.
#include "tests/kill/game.hpp"

#include <algorithm>
#include <thread>

namespace kill_suite {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

nlohmann::json status_of(pid_t process) {
  const auto answer = hazards::ask(process, "status");
  expect(hazards::is_ok(answer), "process " + std::to_string(process) + " answers: " + answer);
  return nlohmann::json::parse(answer).at("status");
}

std::string list_of(const std::set<pid_t>& processes) {
  std::string text;
  for (const auto process : processes) text += std::to_string(process) + ' ';
  return text;
}

void expect_equal(const std::set<pid_t>& seen, const std::set<pid_t>& wanted, const std::string& what) {
  expect(seen == wanted, what + ": " + list_of(seen) + "instead of " + list_of(wanted));
}

// A connection that was answered is closed a little later than its client hears of it.
template <class Condition>
bool soon(Condition condition) {
  constexpr int looks = 1000;
  for (int i = 0; i < looks; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

}  // namespace

Game::Game(const World& world, std::uint64_t seed) : world_(world), random_(seed) {}

std::unique_ptr<Family> Game::make_family() {
  std::vector<std::uint64_t> seeds(1 + below(4));
  for (auto& seed : seeds) seed = random_() >> 1;
  const std::string retain = toss() ? "auto" : "none";
  const auto settings = "tag.scratch.pause:keep,tag.kv_cache.fill:zero,device.wait:100s,host.retain:" + retain;
  return std::make_unique<Family>(seeds, world_.under_lowtide(settings));
}

void Game::renew_families() {
  for (auto& family : families_) {
    if (family != nullptr && !family->members().empty() && below(6) != 0) continue;
    family.reset();
    family = make_family();
    settle(*family);
  }
}

Family& Game::pick_family() { return *families_.at(below(2)); }

void Game::settle(Family& family) {
  for (const bool by_command : {false, true}) {
    for (const auto verb : {Verb::pause, Verb::resume}) move(family, verb, by_command);
  }
  for (auto& member : family.members()) {
    member.at_rest = family.check(member);
    expect(soon([&] { return member.at_rest == std::exchange(member.at_rest, family.check(member)); }),
           "a member comes to rest");
  }
}

void Game::move(Family& family, Verb verb, bool by_command) {
  const auto start = steady_clock::now();
  Asker asker(family, verb, by_command);
  asker.finish(family, false);
  auto& usual = usual_[verb == Verb::pause ? 0 : 1][by_command ? 1 : 0];
  usual = (usual + std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - start)) / 2;
  check_state(family, verb == Verb::pause);
}

std::set<pid_t> Game::alive() const {
  std::set<pid_t> processes;
  for (const auto& family : families_) {
    for (const auto& member : family->members()) processes.insert(member.pid);
  }
  return processes;
}

void Game::look_around(Family& hit) {
  if (toss()) hit.reap();
  check_lists();
  const auto resumed = run_command({"resume", std::to_string(hit.launcher()), "--json"});
  constexpr int not_found = 3;  // docs/cli.md
  expect(resumed.exit_code == (hit.members().empty() ? not_found : 0),
         "the resume after it gives " + std::to_string(resumed.exit_code) + ": " + resumed.errors);
  for (const auto& family : families_) check_state(*family, false);
  check_bytes();
  check_device();
  hit.reap();
  for (const auto verb : {Verb::pause, Verb::resume}) {
    if (!hit.members().empty()) move(hit, verb, below(4) == 0);
    check_device();
  }
  check_bytes();
  const auto strangers = world_.strangers();
  expect(strangers.empty(), strangers.empty() ? "" : "a file was left: " + strangers.front());
}

// The sockets of the killed are left until a command sees them; nothing else is.
void Game::check_lists() {
  const auto wanted = alive();
  const auto before = world_.sockets();
  expect(std::includes(before.begin(), before.end(), wanted.begin(), wanted.end()), "a living process has a socket");
  const auto listing = run_command({"ps", "--json"});
  std::set<pid_t> listed;
  for (const auto& process : listing.answer.at("processes")) {
    const auto pid = process.at("pid").get<pid_t>();
    if (wanted.count(pid) == 0 && killed_.count(pid) == 0) continue;  // of somebody else on this machine
    expect(!process.contains("error"), "ps says " + process.dump());
    listed.insert(pid);
  }
  expect_equal(listed, wanted, "ps lists");
  expect_equal(world_.sockets(), wanted, "sockets after ps");
}

void Game::check_bytes() {
  for (const auto& family : families_) {
    for (const auto& member : family->members()) {
      Footprint now;
      const bool same = soon([&] {
        now = family->check(member);
        return now.device_bytes == member.at_rest.device_bytes && now.descriptors <= member.at_rest.descriptors;
      });
      expect(same, "process " + std::to_string(member.pid) + " holds " + std::to_string(now.device_bytes) + " B and " +
                       std::to_string(now.descriptors) + " descriptors instead of " +
                       std::to_string(member.at_rest.device_bytes) + " B and " +
                       std::to_string(member.at_rest.descriptors));
    }
  }
}

// Whatever is not free is what the living say that they hold.
void Game::check_device() const {
  std::uint64_t held = 0;
  for (const auto process : alive()) {
    const auto status = status_of(process);
    for (const auto& tag : status.at("tags")) {
      held += tag.at("bytes_resident").get<std::uint64_t>() + tag.at("bytes_slack").get<std::uint64_t>();
    }
  }
  const auto free = world_.free_bytes();
  expect(free + held == device_bytes, std::to_string(free) + " B are free and " + std::to_string(held) + " B held of " +
                                          std::to_string(device_bytes));
  expect_equal(world_.shares(), alive(), "shares of the device");
}

void Game::check_state(const Family& family, bool parked) const {
  for (const auto& member : family.members()) {
    const auto status = status_of(member.pid);
    expect(status.at("gate") == (parked ? "closed" : "open"), "the gate is " + status.at("gate").dump());
    expect(parked || status.at("host").at("bytes_backup") == 0, "a backup is left: " + status.at("host").dump());
    for (const auto& tag : status.at("tags")) {
      const bool stays = !parked || tag.at("tag") == "scratch";
      expect(tag.at(stays ? "bytes_parked" : "bytes_resident") == 0,
             "process " + std::to_string(member.pid) + " has " + tag.dump());
    }
  }
}

}  // namespace kill_suite
