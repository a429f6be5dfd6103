// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/ledger.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/ledger_support.hpp"

namespace lowtide {
namespace {

using namespace std::chrono_literals;
using test::holding;
using test::LedgerFolder;
using test::tag;
namespace fs = std::filesystem;

/// A device's free memory, as a test says it.
struct Device {
  std::string key = "GPU-a";
  Bytes free = 10_GiB;

  RoomNeed need(Bytes bytes, Bytes headroom = {}) {
    return {key, bytes, headroom, [this] { return free; }};
  }
};

/// One process's ledger.
struct Member {
  explicit Member(const LedgerFolder& folder, const std::string& device = "GPU-a") : ledger(folder.path()) {
    const auto status = ledger.use(device);
    INFO((status ? "" : status.error().message()));
    REQUIRE(status);
  }
  Ledger ledger;
};

}  // namespace

TEST_CASE("what a process says, all others on its device hear, and nobody on another device") {
  const LedgerFolder folder;
  Member engine(folder);
  Member trainer(folder);
  Member elsewhere(folder, "GPU-b");
  auto weights = holding("weights", "GPU-a", 5_GiB, TagState::syncing);
  weights.version = 41;
  engine.ledger.publish(tag("engine"), {weights, holding("lora", "GPU-b", 1_GiB)});

  const auto heard = trainer.ledger.others();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].pid == ::getpid());
  CHECK_FALSE(heard[0].own);
  CHECK(heard[0].role == tag("engine"));
  CHECK(heard[0].tag == tag("weights"));
  CHECK(heard[0].device == "GPU-a");
  CHECK(heard[0].state == TagState::syncing);
  CHECK(heard[0].version == 41);
  CHECK(heard[0].bytes == 5_GiB);
  CHECK(engine.ledger.others().empty());
  CHECK(elsewhere.ledger.others().empty());
}

TEST_CASE("what is said anew replaces what was said") {
  const LedgerFolder folder;
  Member one(folder);
  Member two(folder);
  one.ledger.publish({}, {holding("weights", "GPU-a", 5_GiB), holding("lora", "GPU-a", 1_GiB)});
  one.ledger.publish({}, {holding("lora", "GPU-a", {}, TagState::paused_backed)});
  const auto heard = two.ledger.others();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].state == TagState::paused_backed);
  CHECK_FALSE(heard[0].role);
}

TEST_CASE("more tags than a table has rows for do not break it") {
  const LedgerFolder folder;
  Member one(folder);
  Member two(folder);
  Holdings many;
  for (int i = 0; i < 100; ++i) many.push_back(holding("tag" + std::to_string(i), "GPU-a", 1_MiB));
  one.ledger.publish({}, many);
  CHECK(two.ledger.others().size() == ledger::most_rows);
}

TEST_CASE("two that want the last room at once do not both get it, and the second gets it when it is given up") {
  const LedgerFolder folder;
  Device device;
  Member one(folder);
  Member two(folder);
  auto first = one.ledger.reserve({device.need(6_GiB)});
  auto second = two.ledger.reserve({device.need(6_GiB)});
  CHECK_FALSE(first->try_grant());
  const auto shortage = second->try_grant();
  REQUIRE(shortage);
  CHECK(shortage->room.reserved == 6_GiB);
  CHECK(shortage->room.free == 10_GiB);
  CHECK(shortage->device == "GPU-a");
  first.reset();
  CHECK_FALSE(second->try_grant());
}

TEST_CASE("who came first gets the room first, even if one who came later would fit") {
  const LedgerFolder folder;
  Device device;
  Member one(folder);
  Member two(folder);
  auto large = one.ledger.reserve({device.need(12_GiB)});
  CHECK(large->try_grant());
  auto small = two.ledger.reserve({device.need(1_GiB)});
  const auto shortage = small->try_grant();
  REQUIRE(shortage);
  CHECK(shortage->room.before == 12_GiB);
  SECTION("once there is room for both, both go") {
    device.free = 13_GiB;
    CHECK_FALSE(large->try_grant());
    CHECK_FALSE(small->try_grant());
  }
  SECTION("one who does not ask any more is not waited for") {
    std::this_thread::sleep_for(std::chrono::milliseconds{LedgerTable::patience_ms + 50});
    CHECK_FALSE(small->try_grant());
  }
  SECTION("nor one who gave up") {
    large.reset();
    CHECK_FALSE(small->try_grant());
  }
}

TEST_CASE("a reservation that becomes memory is not counted twice") {
  const LedgerFolder folder;
  Device device;
  Member one(folder);
  Member two(folder);
  auto first = one.ledger.reserve({device.need(6_GiB)});
  CHECK_FALSE(first->try_grant());
  auto second = two.ledger.reserve({device.need(4_GiB)});
  CHECK_FALSE(second->try_grant());
  auto third = two.ledger.reserve({device.need(Bytes{1})});
  for (int i = 0; i < 6; ++i) {
    const auto shortage = third->try_grant();
    REQUIRE(shortage);
    CHECK(shortage->room.free - shortage->room.reserved == Bytes{});
    device.free -= 1_GiB;
    first->realised("GPU-a", 1_GiB);
  }
  first->realised("GPU-a", 1_GiB);  // more than was reserved
  const auto shortage = third->try_grant();
  REQUIRE(shortage);
  CHECK(shortage->room.reserved == 4_GiB);
}

TEST_CASE("headroom stays free beside what is granted") {
  const LedgerFolder folder;
  Device device;
  Member one(folder);
  CHECK(one.ledger.reserve({device.need(10_GiB, 1_MiB)})->try_grant());
  CHECK_FALSE(one.ledger.reserve({device.need(10_GiB - 1_MiB, 1_MiB)})->try_grant());
}

TEST_CASE("two reservations of one process count beside each other") {
  const LedgerFolder folder;
  Device device;
  Member one(folder);
  auto first = one.ledger.reserve({device.need(6_GiB)});
  auto second = one.ledger.reserve({device.need(6_GiB)});
  CHECK_FALSE(first->try_grant());
  CHECK(second->try_grant());
}

TEST_CASE("room on several devices is given as a whole or not at all") {
  const LedgerFolder folder;
  Device a;
  Device b{"GPU-b", 1_GiB};
  Member one(folder);
  REQUIRE(one.ledger.use("GPU-b"));
  Member two(folder);
  auto both = one.ledger.reserve({b.need(2_GiB), a.need(8_GiB)});
  CHECK(both->try_grant()->device == "GPU-b");
  SECTION("who came later waits behind it") {
    auto later = two.ledger.reserve({a.need(8_GiB)});
    CHECK(later->try_grant()->room.before == 8_GiB);
    CHECK(later->try_grant()->room.reserved == Bytes{});
  }
  SECTION("and gets the room when it gives up") {
    both.reset();
    CHECK_FALSE(two.ledger.reserve({a.need(8_GiB)})->try_grant());
  }
}

TEST_CASE("two that want the same two devices, named in other orders, do not block each other") {
  const LedgerFolder folder;
  Device a;
  Device b{"GPU-b", 10_GiB};
  Member one(folder);
  Member two(folder);
  REQUIRE(one.ledger.use("GPU-b"));
  REQUIRE(two.ledger.use("GPU-b"));
  auto first = one.ledger.reserve({a.need(8_GiB), b.need(8_GiB)});
  auto second = two.ledger.reserve({b.need(8_GiB), a.need(8_GiB)});
  CHECK(second->try_grant().has_value() != first->try_grant().has_value());
  if (first->try_grant()) {
    second.reset();
    CHECK_FALSE(first->try_grant());
  } else {
    first.reset();
    CHECK_FALSE(second->try_grant());
  }
}

TEST_CASE("a device without a key is shared with nobody, and only its free memory counts") {
  const LedgerFolder folder;
  Device device{"", 10_GiB};
  Member one(folder, "");
  Member two(folder, "");
  one.ledger.publish({}, {holding("weights", "", 5_GiB)});
  CHECK(two.ledger.others().empty());
  CHECK_FALSE(one.ledger.reserve({device.need(10_GiB)})->try_grant());
  CHECK(one.ledger.reserve({device.need(11_GiB)})->try_grant());
  CHECK_FALSE(folder.exists());
}

TEST_CASE("who waits is woken when room is given up") {
  const LedgerFolder folder;
  Device device;
  Member one(folder);
  Member two(folder);
  auto first = one.ledger.reserve({device.need(6_GiB)});
  CHECK_FALSE(first->try_grant());
  auto second = two.ledger.reserve({device.need(6_GiB)});
  const auto seen = two.ledger.change("GPU-a");
  CHECK(second->try_grant());
  std::thread giver([&] { first.reset(); });
  while (second->try_grant()) two.ledger.wait_for_change("GPU-a", seen, std::chrono::steady_clock::now() + 10s);
  giver.join();
  CHECK(two.ledger.change("GPU-a") != seen);
}

TEST_CASE("of two that wait for each other the later one is told, with both named; the other waits on") {
  const LedgerFolder folder;
  Member one(folder);
  Member two(folder);
  one.ledger.publish({}, {holding("optim", "GPU-a", 1_GiB)});
  two.ledger.publish({}, {holding("weights", "GPU-a", 1_GiB)});
  const auto wait_for = [](Ledger& who, const char* wants) {
    const auto other = who.others().at(0);
    who.wait_for(Waiting{tag(wants), {{other.instance, other.tag}}, Ledger::draw_ticket()});
  };
  wait_for(one.ledger, "lora");
  CHECK_FALSE(one.ledger.circle());
  wait_for(two.ledger, "grads");
  const auto pid = std::to_string(::getpid());
  CHECK(two.ledger.circle() == "process " + pid + " waits to resume grads until process " + pid +
                                   " pauses optim, which waits to resume lora until process " + pid +
                                   " pauses weights");
  CHECK_FALSE(one.ledger.circle());
  SECTION("one that waits no more closes no circle") {
    one.ledger.wait_for({});
    CHECK_FALSE(two.ledger.circle());
  }
  SECTION("one whose wait is old is not believed") {
    std::this_thread::sleep_for(std::chrono::milliseconds{LedgerTable::patience_ms + 50});
    CHECK_FALSE(two.ledger.circle());
  }
}

TEST_CASE("the last one out removes the table and its folder, whoever that is") {
  const LedgerFolder folder;
  {
    Member one(folder);
    {
      Member two(folder);
      two.ledger.leave();
      CHECK(folder.exists());
      CHECK(one.ledger.tables().at(0).processes == 1);
    }
    CHECK(folder.exists());
  }
  CHECK_FALSE(folder.exists());
}

TEST_CASE("tables that come and go all the time never leave two processes in two tables") {
  const LedgerFolder folder;
  std::atomic<int> lost{0};
  const auto work = [&] {
    for (int i = 0; i < 300; ++i) {
      Ledger mine(folder.path());
      if (!mine.use("GPU-a")) ++lost;
    }
  };
  Member stays(folder);
  std::thread other(work);
  work();
  other.join();
  CHECK(lost == 0);
  Member late(folder);
  late.ledger.publish({}, {holding("weights", "GPU-a", 1_GiB)});
  CHECK(stays.ledger.others().size() == 1);
}

TEST_CASE("a host that closes our descriptor does not silence the process") {
  const LedgerFolder folder;
  Member one(folder);
  Member two(folder);
  one.ledger.publish({}, {holding("weights", "GPU-a", 1_GiB)});
  const auto table = fs::canonical(folder.path() + "/ledger-1-GPU-a");
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(entry, ignored) == table) {
      ::close(std::stoi(entry.path().filename()));
      break;
    }
  }
  one.ledger.publish({}, {holding("weights", "GPU-a", 2_GiB)});
  two.ledger.publish({}, {holding("optim", "GPU-a", 2_GiB)});
  CHECK(one.ledger.others().size() == 1);
  CHECK(two.ledger.others().size() == 1);
}

TEST_CASE("a folder or a table that somebody else could have made is not used") {
  const LedgerFolder folder;
  Ledger ledger(folder.path());
  const auto refused = [&](const char* why) {
    const auto status = ledger.use("GPU-a");
    REQUIRE_FALSE(status);
    CHECK(std::string(status.error().message()).find(why) != std::string::npos);
    CHECK(ledger.tables().at(0).trouble == status.error().message());
    Device device;
    CHECK_FALSE(ledger.reserve({device.need(10_GiB)})->try_grant());
  };
  SECTION("a link") {
    fs::create_symlink("/tmp", folder.path());
    refused("open: ");
  }
  SECTION("a folder that others may write") {
    fs::create_directory(folder.path());
    ::chmod(folder.path().c_str(), 0777);
    refused("is open to other users");
  }
  SECTION("a link in the table's place") {
    fs::create_directory(folder.path());
    ::chmod(folder.path().c_str(), 0700);
    fs::create_symlink("/etc/passwd", folder.path() + "/ledger-1-GPU-a");
    refused("open: ");
  }
  SECTION("a folder in the table's place") {
    fs::create_directories(folder.path() + "/ledger-1-GPU-a");
    ::chmod(folder.path().c_str(), 0700);
    refused("open: ");
  }
}

TEST_CASE("a table that was left half made is set up anew") {
  const LedgerFolder folder;
  fs::create_directory(folder.path());
  ::chmod(folder.path().c_str(), 0700);
  const int fd = ::open((folder.path() + "/ledger-1-GPU-a").c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(::write(fd, "half", 4) == 4);
  ::close(fd);
  Member one(folder);
  CHECK(one.ledger.tables().at(0).processes == 1);
}

}  // namespace lowtide
