// SPDX-License-Identifier: Apache-2.0
// Eight threads allocate, write, check and free while others pause and resume their tags with a hold, update one of
// them, capture streams and ask for the status. As the hooks do, a thread touches device memory between entering and
// leaving the gate.
#include <cstdlib>
#include <future>
#include <random>
#include <thread>

#include "tests/catch.hpp"
#include "tests/contract/runtime_world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

constexpr const char* tags[] = {"weights", "kv_cache", "lora"};

class Worker {
 public:
  Worker(RuntimeWorld& world, std::uint64_t seed) : world_(world), gate_(world.runtime.gate()), random_(seed) {}

  void run(int rounds) {
    visitor_ = gate_.add_visitor();
    for (int i = 0; i < rounds; ++i) {
      if (blocks_.size() < 6) allocate();
      if (!blocks_.empty()) touch(blocks_[random_() % blocks_.size()]);
      if (blocks_.size() >= 6 || random_() % 3 == 0) free();
    }
    while (!blocks_.empty()) free();
    Gate::remove_visitor(visitor_);
  }

 private:
  struct Block {
    DeviceAddress address;
    Bytes size;
    std::size_t device;
    bool keeps_bytes;
    bool written = false;
    std::uint8_t value = 0;
  };

  void allocate() {
    const auto device = random_() % 2;
    const auto tag = random_() % std::size(tags);
    const Bytes size{random_() % 4 == 0 ? 2'500'000 : 1 + random_() % 100'000};
    Backend& backend = *world_.attach(device).value();
    const auto address = world_.runtime.allocate(backend, tag_name(tags[tag]), world_.context(device), size);
    blocks_.push_back({address.value(), size, device, tags[tag] != std::string_view("kv_cache")});
  }

  // Inside the gate every block is resident; what a discarded one holds is nobody's promise.
  void touch(Block& block) {
    (void)gate_.enter(visitor_);
    if (world_.is_parked(block.address)) throw std::runtime_error("a block is parked inside the gate");
    if (block.written && block.keeps_bytes && !world_.holds(block.address, block.size, block.value, block.device)) {
      throw std::runtime_error("a block has other bytes");
    }
    block.value = static_cast<std::uint8_t>(random_());
    Backend& backend = *world_.attach(block.device).value();
    block.written = backend.fill({block.address, block.size}, block.value) && backend.finish_copies();
    if (!block.written) throw std::runtime_error("a block cannot be written");
    gate_.leave(visitor_);
  }

  void free() {
    if (world_.runtime.blocks().free(blocks_.back().address) != BlockTable::Freed::done) {
      throw std::runtime_error("a block cannot be freed");
    }
    blocks_.pop_back();
  }

  RuntimeWorld& world_;
  Gate& gate_;
  std::mt19937_64 random_;
  GateVisitor* visitor_ = nullptr;
  std::vector<Block> blocks_;
};

void pause_and_resume(RuntimeWorld& world, const std::atomic<bool>& over) {
  std::mt19937_64 random(99);
  while (!over) {
    const auto pick = random() % (std::size(tags) + 1);
    const auto tag = pick < std::size(tags) ? std::optional(tag_name(tags[pick])) : std::nullopt;
    (void)world.runtime.pause(tag, true, std::chrono::seconds{30}, {}, {});
    if (!world.runtime.resume(tag)) throw std::runtime_error("a resume failed");
  }
}

void update(RuntimeWorld& world, const std::atomic<bool>& over) {
  const TagName tag = tag_name("kv_cache");
  for (std::uint64_t version = 1; !over; ++version) {
    // Refused while the tag is parked.
    if (world.runtime.begin_update(tag, version) && version % 4 != 0) (void)world.runtime.commit_update(tag, version);
    if (!world.runtime.abort_update(tag)) throw std::runtime_error("an abort failed");
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

void capture(RuntimeWorld& world, const std::atomic<bool>& over) {
  const int stream = 0;
  while (!over) {
    world.runtime.captures().begin();
    world.runtime.captures().began(&stream, true);
    std::this_thread::yield();
    world.runtime.capture_ended(&stream);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
}

void ask(RuntimeWorld& world, const std::atomic<bool>& over) {
  while (!over) {
    if (world.runtime.status_json().empty()) throw std::runtime_error("no status");
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace

TEST_CASE("eight threads allocate and free while tags pause and resume") {
  const int rounds = std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 1500 : 150;
  (void)SimulatedDriver::instance();
  const Held before = held_now();
  {
    RuntimeWorld world(SimulatedDriver::instance().driver(), 2);
    REQUIRE((world.attach(0) && world.attach(1)));
    std::atomic<bool> over{false};
    std::vector<std::future<void>> others;
    for (const auto work : {pause_and_resume, capture, ask, update}) {
      others.push_back(std::async(std::launch::async, work, std::ref(world), std::cref(over)));
    }
    std::vector<std::future<void>> workers;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      workers.push_back(std::async(std::launch::async, [&, seed] { Worker(world, seed).run(rounds); }));
    }
    for (auto& worker : workers) CHECK_NOTHROW(worker.get());
    over = true;
    for (auto& other : others) CHECK_NOTHROW(other.get());
    REQUIRE(world.runtime.resume(std::nullopt));
    world.runtime.blocks().finish_frees();
    CHECK(world.runtime.blocks().regions().size() <= 6);
    for (const auto& region : world.runtime.blocks().regions()) CHECK(region.blocks == 0);
    CHECK(held_now().handles == 0);
    CHECK(held_now().mappings == 0);
  }
  Held after = held_now();
  after.reservations = before.reservations;
  CHECK(after == before);
}
