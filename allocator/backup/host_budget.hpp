// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "allocator/backup/host_row.hpp"
#include "allocator/base/host_limits.hpp"
#include "allocator/base/result.hpp"

namespace lowtide {

class HostBudget;

/// What becomes of a std::bad_alloc in this layer.
inline Failure no_bookkeeping_memory() noexcept {
  return fail(Code::host_budget, "the host has no memory for the bookkeeping of a backup");
}

/// Host memory that was promised to this process and is not all touched yet. Thread-safe, but for moving it. Must not
/// outlive its budget.
class HostReservation {
 public:
  HostReservation() = default;
  HostReservation(HostReservation&& other) noexcept;
  HostReservation& operator=(HostReservation&& other) noexcept;
  /// Gives up what is still to come.
  ~HostReservation();

  /// To be called once `size` of it has been touched, that is when the kernel counts it as used: not earlier, since
  /// between the two nobody would count it. More than is still to come is taken as that.
  void touched(Bytes size) noexcept;
  Bytes coming() const noexcept;

 private:
  friend class HostBudget;
  HostReservation(HostBudget& budget, Bytes size) noexcept : budget_(&budget), coming_(size) {}

  HostBudget* budget_ = nullptr;
  Bytes coming_;  ///< guarded by the budget's mutex
};

/// Decides whether host memory may be taken for backups: within `host.budget`, the limits of the process's control
/// groups and what the host has available, all of it less what was promised to others (and to this process) and is
/// still to come. One for each process, since its numbers are the process's; thread-safe; nothing throws.
///
/// The arena calls, in this order: `reserve` for the new memory of a pause, in whole slabs; `pausing_processes` to
/// share the processors; `HostReservation::touched` for each slab after touching it; ends the reservation with the
/// pause; and `release_held` for each slab that it has given back to the host.
class HostBudget {
 public:
  /// `root` is "" but for tests. `patience` is how long a reservation waits for what is promised to others.
  explicit HostBudget(std::string root = "", std::chrono::milliseconds patience = usual_patience);
  HostBudget(const HostBudget&) = delete;
  HostBudget& operator=(const HostBudget&) = delete;

  /// What `host.budget` says; nothing: no limit. Holds for later reservations.
  void set_budget(std::optional<Bytes> budget) noexcept;

  /// Code::host_budget if `need` more does not fit; nothing is reserved then. Waits if it would fit but for what is
  /// promised to others: these bytes are counted twice from their touching until they are reported, and a promise may
  /// be given up. A peer that is stopped while it decides is waited for as long at most.
  Result<HostReservation> reserve(Bytes need) noexcept;

  /// To be called after `size` that was touched is given back to the host.
  void release_held(Bytes size) noexcept;
  /// What this process holds: touched and not given back, or still to come.
  Bytes held() const noexcept;

  /// How many processes of this node take host memory now, this one included: at least 1.
  unsigned pausing_processes() noexcept;

  /// For a fork child, which has none of the memory: its copies of the descriptors would keep the parent's promises
  /// alive after the parent's end. From then on it promises nothing. May be called at whatever moment the fork came.
  void abandon_in_child() noexcept;

 private:
  friend class HostReservation;
  using Deadline = std::chrono::steady_clock::time_point;
  /// The node and the limited control groups: a row in each. More levels than this count by the node's row.
  static constexpr std::size_t most_rows = 12;
  /// Longer than a thread needs to touch a slab in small pages (32 MiB, 15 ms) while many wait for the processors, and
  /// short enough for a pause that is refused in the end.
  static constexpr std::chrono::milliseconds usual_patience{2000};

  /// What was seen of the others and of this process at one moment.
  struct Seen {
    HostRow::Share own;
    std::array<HostRow::Others, most_rows> others;
    std::optional<Bytes> budget;
  };
  struct Obstacle;
  class Judge;
  class RowsLocked;
  class Promise;

  /// Nothing if `need` fits and is promised.
  std::optional<Obstacle> attempt(Bytes need, Deadline deadline);
  void open_rows(const HostLimits& limits);
  void open_node();
  Seen look() const noexcept;
  /// Adds to the share, or takes from it, and publishes it.
  void add(HostRow::Share more) noexcept;
  void take(HostRow::Share less) noexcept;
  void publish() noexcept;
  void arrived(Bytes& coming, Bytes size) noexcept;

  const std::string root_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> abandoned_{false};
  std::mutex deciding_;       ///< one thread of this process decides at a time; taken before `mutex_`
  mutable std::mutex mutex_;  ///< guards what follows; opening a row needs both
  std::optional<Bytes> budget_;
  HostRow::Share own_;
  std::array<HostRow, most_rows> rows_;  ///< the first is the node's
  bool told_ = false;                    ///< that the promises to others are not seen
};

}  // namespace lowtide
