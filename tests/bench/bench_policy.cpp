// SPDX-License-Identifier: Apache-2.0
// bench_policy: what the ledger and the rules cost a transition, with 8 processes' worth of slots in the table, and how
// soon a process that waits goes on once room is given up. Prints the median of many.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <thread>

#include "allocator/policy/ledger.hpp"
#include "allocator/policy/rules.hpp"

using namespace lowtide;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int rounds = 2000;
const std::string device = "GPU-bench";

Holding holding_of(const char* name, bool own) {
  Holding holding;
  holding.own = own;
  holding.tag = *TagName::parse(name);
  holding.device = device;
  holding.bytes = 1_GiB;
  return holding;
}

RoomNeed need(Bytes bytes) {
  return {device, bytes, {}, [] { return 10_GiB; }};
}

double micros(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

template <class Work>
void measure(const char* what, Work work) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    work();
    times.push_back(micros(Clock::now() - start));
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  std::printf("%-40s %8.1f us\n", what, times[rounds / 2]);
}

void measure_rules() {
  auto rules = built_in_rules();
  Holdings holdings;
  for (const char* name : {"weights", "kv_cache", "lora", "optim", "grads", "params"}) {
    for (int process = 0; process < 8; ++process) holdings.push_back(holding_of(name, process == 0));
    Rule rule;
    rule.tag = *TagSelector::parse("kv_cache");
    rule.needs_paused = {*TagSelector::parse(name)};
    rules.push_back(rule);
  }
  const PolicyEvent event{RuleEvent::resume, *TagName::parse("kv_cache"), {}, 0};
  measure("rule check, 9 rules, 48 holdings", [&] { (void)breaches(rules, event, holdings); });
}

/// From giving room up to the waiter's grant, across two ledgers.
void measure_wake(Ledger& giver, Ledger& taker) {
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    auto held = giver.reserve({need(8_GiB)});
    (void)held->try_grant();
    std::atomic<bool> waits{false};
    Clock::time_point granted;
    std::thread waiter([&] {
      const auto wanted = taker.reserve({need(8_GiB)});
      for (;;) {
        const auto seen = taker.change(device);
        if (!wanted->try_grant()) break;
        waits = true;
        taker.wait_for_change(device, seen, Clock::now() + std::chrono::seconds{1});
      }
      granted = Clock::now();
    });
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    const auto start = Clock::now();
    held.reset();
    waiter.join();
    times.push_back(micros(granted - start));
  }
  std::sort(times.begin(), times.end());
  std::printf("%-40s %8.1f us, at most %.1f us\n", "from room given up to the waiter's grant", times[times.size() / 2],
              times.back());
}

}  // namespace

int main() {
  const auto folder = "/dev/shm/lowtide-bench-" + std::to_string(::getpid());
  std::deque<Ledger> ledgers;
  for (int i = 0; i < 8; ++i) {
    if (const auto status = ledgers.emplace_back(folder).use(device); !status) {
      std::fprintf(stderr, "%s\n", status.error().message());
      return 1;
    }
  }
  auto& ledger = ledgers.front();
  const Holdings own{holding_of("weights", true), holding_of("kv_cache", true), holding_of("lora", true)};
  for (auto& each : ledgers) each.publish({}, own);
  measure("publish 3 tags", [&] { ledger.publish({}, own); });
  measure("read all others", [&] { (void)ledger.others(); });
  measure("reserve and give up", [&] { (void)ledger.reserve({need(1_GiB)})->try_grant(); });
  measure_rules();
  measure_wake(ledgers[0], ledgers[1]);
  return 0;
}
