// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/base/result.hpp"
#include "allocator/policy/holdings.hpp"
#include "allocator/policy/ledger_table.hpp"

namespace lowtide {

/// "/dev/shm/lowtide-UID"
std::string ledger_folder();

/// Room that a reservation wants on one device.
struct RoomNeed {
  std::string device;  ///< its key; a device without one is nobody else's, and only its free memory counts
  Bytes bytes;
  Bytes headroom;               ///< stays free beside it
  std::function<Bytes()> free;  ///< what the device has free now
};

/// Why there is no room.
struct RoomShortage {
  std::string device;
  Bytes headroom;
  LedgerTable::Room room;
};

class Ledger;

/// Room on some devices: wanted until all of it is granted, then reserved until this ends. Not thread-safe.
class Reservation {
 public:
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  /// Grants all of it, device after device in the order of their keys, or nothing. To be asked again within
  /// LedgerTable::patience_ms, or others come first.
  std::optional<RoomShortage> try_grant();
  /// What it got is the driver's again: it wants all of it anew, and has the turn that it had.
  void wait_on() noexcept;
  bool is_for(const std::vector<RoomNeed>& needs) const noexcept;
  /// `bytes` are out of the free memory of the device from now on.
  void realised(const std::string& device, Bytes bytes) noexcept;

 private:
  friend class Ledger;
  struct Part {
    RoomNeed need;
    std::optional<LedgerTable::ClaimId> claim;
    std::uint64_t opened = 0;  ///< which opening of the table the claim is of
  };
  Reservation(Ledger& ledger, std::uint64_t ticket) : ledger_(ledger), ticket_(ticket) {}

  Ledger& ledger_;
  const std::uint64_t ticket_;
  std::vector<Part> parts_;
};

/// For whose tags a process waits, by rules.
struct Waiting {
  TagName wants;
  struct For {
    std::uint64_t instance;
    TagName tag;
  };
  std::vector<For> tags;
  std::uint64_t ticket = 0;  ///< of the moment at which the wait began
};

/// What this process says to all of this user that share a device with it, and hears of them: one table per physical
/// device, in shared memory, without a daemon. Thread-safe. Where a table cannot be had, this process is alone in it,
/// and only the device's free memory says what others do.
class Ledger {
 public:
  explicit Ledger(std::string folder = ledger_folder());

  /// The devices whose tables this process has; those without a key are left out. An error says which table cannot be
  /// had and why; the others are open then.
  Status use(const std::string& device);
  /// Says what this process holds, on all its devices, and wakes those who wait there.
  void publish(const std::optional<TagName>& role, const Holdings& own);
  /// What all others say. Their `pid` is that of their own PID namespace.
  Holdings others() const;

  /// Tickets and waits.
  static std::uint64_t draw_ticket() noexcept;
  /// Believed until this is called again, but no longer than LedgerTable::patience_ms; empty: waits no more.
  void wait_for(const std::optional<Waiting>& waiting);
  /// What to tell if this process waits for one that waits for this one, directly or through others, and came last of
  /// them: somebody has to give way.
  std::optional<std::string> circle() const;

  /// Its turn is that of the ticket.
  std::unique_ptr<Reservation> reserve(std::vector<RoomNeed> needs, std::uint64_t ticket = draw_ticket());

  /// Wakes all who wait on a device of this process.
  void wake() noexcept;
  /// The last change on the device; to be read before looking at what one may then have to wait for.
  std::uint32_t change(const std::string& device) const;
  /// Until something changed on the device after `seen`, or `until`, but at most 100 ms: memory also comes free unsaid.
  void wait_for_change(const std::string& device, std::uint32_t seen, std::chrono::steady_clock::time_point until);

  /// One line for each table, for status.
  struct Table {
    std::string device;
    std::size_t processes = 0;  ///< this one included
    std::string trouble;        ///< why it cannot be had; "" if it can
  };
  std::vector<Table> tables() const;

  /// What this process said and reserved is gone. The last one out removes the tables. Does nothing where another
  /// thread is in the middle of a call: whoever comes next tidies up.
  void leave() noexcept;
  /// In the child of a fork. Takes no lock; at whatever moment of another thread the fork came.
  void abandon_in_child() noexcept;

 private:
  friend class Reservation;
  struct Entry {
    Entry(const std::string& folder, const std::string& device) : table(folder, device) {}
    LedgerTable table;
    std::uint64_t opened = 0;
    std::uint64_t next_try = 0;  ///< ms
    std::string trouble;
    Entry* next = nullptr;
  };
  Entry& entry_of(const std::string& device);
  /// An open table is said what there is to say. One that cannot be had is not asked for at each allocation.
  Status join(const std::string& device, Entry& entry);
  ledger::Said said_on(const std::string& device) const;
  void say(bool wakes);

  const std::string folder_;
  const std::uint64_t instance_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> tables_;  ///< by key: the order in which devices are reserved
  std::atomic<Entry*> last_entry_{
      nullptr};  ///< all of them, for a fork child: a fork may come amid a change of the map
  std::optional<TagName> role_;
  Holdings own_;
  std::optional<Waiting> waiting_;
  std::uint64_t waits_until_ = 0;  ///< ms; of `waiting_`
  bool left_ = false;
};

}  // namespace lowtide
