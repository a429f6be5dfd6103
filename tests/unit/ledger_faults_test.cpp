// SPDX-License-Identifier: Apache-2.0
// What becomes of a table, and of those who use it, when things go wrong around them.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/ledger_support.hpp"

namespace lowtide {
namespace {

using test::holding;
using test::LedgerFolder;
using test::tag;
namespace fs = std::filesystem;

RoomNeed need(Bytes bytes) {
  return {"GPU-a", bytes, {}, [] { return 10_GiB; }};
}

std::unique_ptr<Ledger> join(const LedgerFolder& folder) {
  auto ledger = std::make_unique<Ledger>(folder.path());
  REQUIRE(ledger->use("GPU-a"));
  return ledger;
}

std::string table_in(const LedgerFolder& folder) { return folder.path() + "/ledger-1-GPU-a"; }

void expect_to_meet(const LedgerFolder& folder, Ledger& one, Ledger& two) {
  // Each goes to the new table with its next word.
  one.publish({}, {holding("weights", "GPU-a", 1_GiB)});
  two.publish({}, {holding("optim", "GPU-a", 1_GiB)});
  const auto late = join(folder);
  CHECK(late->others().size() == 2);
  CHECK(one.others().size() == 1);
  CHECK(two.others().size() == 1);
  const auto reserved = one.reserve({need(6_GiB)});
  CHECK_FALSE(reserved->try_grant());
  CHECK(late->reserve({need(6_GiB)})->try_grant());
}

}  // namespace

TEST_CASE("a table that somebody removes while it is used does not leave old and new users apart") {
  const LedgerFolder folder;
  const auto one = join(folder);
  const auto two = join(folder);
  fs::remove_all(folder.path());
  expect_to_meet(folder, *one, *two);
}

TEST_CASE("a table that somebody empties while it is used ends nobody") {
  const LedgerFolder folder;
  const auto one = join(folder);
  const auto two = join(folder);
  const auto reserved = one->reserve({need(1_GiB)});
  CHECK_FALSE(reserved->try_grant());
  fs::resize_file(table_in(folder), 0);
  CHECK(two->others().empty());
  CHECK_FALSE(one->circle());
  reserved->realised("GPU-a", 1_MiB);
  (void)reserved->try_grant();
  one->wake();
  CHECK(one->change("GPU-a") == 0);
  two->wait_for_change("GPU-a", 0, std::chrono::steady_clock::now());
  expect_to_meet(folder, *one, *two);
}

TEST_CASE("a process that has left writes nothing into the place of its heir") {
  const LedgerFolder folder;
  const auto watcher = join(folder);
  const auto ending = join(folder);
  auto reserved = ending->reserve({need(1_GiB)});
  CHECK_FALSE(reserved->try_grant());
  ending->leave();
  const auto heir = join(folder);
  const auto of_heir = heir->reserve({need(6_GiB)});
  CHECK_FALSE(of_heir->try_grant());
  SECTION("by giving up what it had reserved") { reserved.reset(); }
  SECTION("by what it gets") { reserved->realised("GPU-a", 6_GiB); }
  SECTION("by asking on") { (void)reserved->try_grant(); }
  SECTION("by asking anew") { (void)ending->reserve({need(2_GiB)})->try_grant(); }
  const auto shortage = watcher->reserve({need(5_GiB)})->try_grant();
  REQUIRE(shortage);
  CHECK(shortage->room.reserved == 6_GiB);
}

TEST_CASE("what others have reserved counts for one more wish than a process has places for, too") {
  const LedgerFolder folder;
  const auto other = join(folder);
  const auto reserved = other->reserve({need(6_GiB)});
  CHECK_FALSE(reserved->try_grant());
  const auto greedy = join(folder);
  std::vector<std::unique_ptr<Reservation>> wishes;
  for (unsigned i = 0; i <= ledger::most_claims; ++i) {
    wishes.push_back(greedy->reserve({need(5_GiB)}));
    CHECK(wishes.back()->try_grant());
  }
  wishes.erase(wishes.begin(), wishes.end() - 1);
  wishes.insert(wishes.begin(), greedy->reserve({need(1_GiB)}));
  CHECK(wishes.back()->try_grant()->room.reserved == 6_GiB);
}

TEST_CASE("a wait that was given up closes no circle, however much its process says afterwards") {
  const LedgerFolder folder;
  const auto one = join(folder);
  const auto two = join(folder);
  one->publish({}, {holding("optim", "GPU-a", 1_GiB)});
  two->publish({}, {holding("weights", "GPU-a", 1_GiB)});
  const auto wait_for = [](Ledger& who, const char* wants) {
    const auto other = who.others().at(0);
    who.wait_for(Waiting{tag(wants), {{other.instance, other.tag}}, Ledger::draw_ticket()});
  };
  wait_for(*one, "lora");
  std::this_thread::sleep_for(std::chrono::milliseconds{LedgerTable::patience_ms + 50});
  one->publish({}, {holding("optim", "GPU-a", 2_GiB)});
  wait_for(*two, "grads");
  CHECK_FALSE(two->circle());
}

TEST_CASE("a fork while another thread takes more devices into use leaves a child that runs") {
  const LedgerFolder folder;
  const auto ledger = join(folder);
  std::atomic<bool> done{false};
  std::thread user([&] {
    for (int i = 0; !done && i < 200; ++i) (void)ledger->use("GPU-" + std::to_string(i));
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      ledger->abandon_in_child();
      ::syscall(SYS_exit_group, 0);  // a sanitizer would report the thread that is not here
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  done = true;
  user.join();
}

TEST_CASE("words of another that mean nothing grant nothing") {
  const LedgerFolder folder;
  const auto one = join(folder);
  const auto two = join(folder);
  // In the place of the second process: claims of more bytes than there are in the world, one after the other.
  const std::unique_ptr<FILE, int (*)(FILE*)> table(std::fopen(table_in(folder).c_str(), "r+"), std::fclose);
  REQUIRE(table);
  for (unsigned i = 0; i < 2; ++i) {
    const std::array<std::uint64_t, 3> claim{4 + 3, std::uint64_t{1} << 63, ~0ull};
    const auto at = ledger::header_bytes + ledger::slot_bytes + sizeof(ledger::Word) + i * sizeof(ledger::Claim);
    std::fseek(table.get(), static_cast<long>(at), SEEK_SET);
    REQUIRE(std::fwrite(claim.data(), sizeof claim, 1, table.get()) == 1);
  }
  std::fflush(table.get());
  CHECK(one->reserve({need(1_GiB)})->try_grant());
}

}  // namespace lowtide
