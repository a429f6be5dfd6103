// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/host_budget.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "allocator/base/log.hpp"
#include "allocator/core/uncancelled.hpp"

namespace lowtide {
namespace {

constexpr Bytes without(Bytes from, Bytes size) noexcept { return from < size ? Bytes{} : from - size; }

/// With the page tables and the driver's list of the pages: 8 bytes each for every 4 KiB.
constexpr Bytes with_overhead(Bytes size) noexcept { return size + Bytes{size.value / 256}; }

/// The end of a path says which limit it is.
std::string end_of(const std::string& path) {
  constexpr std::size_t most = 76;
  return path.size() <= most ? path : "..." + path.substr(path.size() - most + 3);
}

}  // namespace

struct HostBudget::Obstacle {
  std::string name;
  Bytes limit;
  Bytes need;
  Bytes room;
  Bytes own;  ///< what this process holds already
  HostRow::Others others;
  bool may_pass = false;  ///< it would fit but for what is promised and still to come

  Error error() const {
    return Error::format(Code::host_budget,
                         "the backup needs %s more host memory and %s (%s) leaves %s; this process holds %s for "
                         "backups, other processes (%u) hold %s, %s of it to come. Nothing changed: run lowtide trim, "
                         "let the tag be discarded, or "
                         "raise the limit",
                         to_text(need).c_str(), name.c_str(), to_text(limit).c_str(), to_text(room).c_str(),
                         to_text(own).c_str(), others.holders, to_text(others.held).c_str(),
                         to_text(others.coming).c_str());
  }
};

/// Looks at one limit after the other and keeps the one that stands most in the way.
class HostBudget::Judge {
 public:
  Judge(const Seen& seen, Bytes need) : seen_(seen), need_(need) {}

  void consider_budget() {
    if (!seen_.budget) return;
    const auto& others = seen_.others[0];
    consider({"host.budget", *seen_.budget, need_, without(without(*seen_.budget, own()), others.held), own(), others});
  }

  /// `free` is what the kernel says is not used.
  void consider_limit(const std::string& name, Bytes limit, Bytes free, const HostRow::Others& others) {
    const auto asked = with_overhead(need_);
    const auto promised_here = with_overhead(without(seen_.own.coming, need_));
    const auto room = without(without(free, promised_here), others.coming);
    consider({name, limit, asked, room, own(), others, asked <= free});
  }

  std::optional<Obstacle> worst() && { return std::move(worst_); }

 private:
  /// The need is promised by now.
  Bytes own() const noexcept { return without(seen_.own.held, need_); }
  void consider(Obstacle obstacle) {
    if (obstacle.need <= obstacle.room) return;
    // What cannot pass comes before what may: waiting is of no use then.
    const auto rank = [](const Obstacle& o) { return std::pair(o.may_pass, o.room); };
    if (!worst_ || rank(obstacle) < rank(*worst_)) worst_ = std::move(obstacle);
  }

  const Seen& seen_;
  Bytes need_;
  std::optional<Obstacle> worst_;
};

/// From the top down, so that those who share only some of the rows take these in the same order. A row that cannot be
/// had in time is left: a promise is made before it is judged, so that two that decide at once without the
/// lock may both be refused, and never both be promised the same memory.
class HostBudget::RowsLocked {
 public:
  RowsLocked(HostBudget& budget, Deadline deadline) noexcept : rows_(budget.rows_) {
    for (std::size_t i = 0; i < rows_.size(); ++i) locked_[i] = rows_[i].lock(deadline);
  }
  RowsLocked(const RowsLocked&) = delete;
  RowsLocked& operator=(const RowsLocked&) = delete;
  ~RowsLocked() {
    for (std::size_t i = rows_.size(); i-- > 0;) {
      if (locked_[i]) rows_[i].unlock();
    }
  }

 private:
  std::array<HostRow, most_rows>& rows_;
  std::array<bool, most_rows> locked_{};
};

/// Is taken back unless it is kept.
class HostBudget::Promise {
 public:
  Promise(HostBudget& budget, Bytes need) noexcept : budget_(budget), share_{need, need} { budget_.add(share_); }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;
  ~Promise() { budget_.take(share_); }
  void keep() noexcept { share_ = {}; }

 private:
  HostBudget& budget_;
  HostRow::Share share_;
};

HostBudget::HostBudget(std::string root, std::chrono::milliseconds patience)
    : root_(std::move(root)), patience_(patience) {}

void HostBudget::set_budget(std::optional<Bytes> budget) noexcept {
  const std::lock_guard lock(mutex_);
  budget_ = budget;
}

Result<HostReservation> HostBudget::reserve(Bytes need) noexcept {
  constexpr timespec pause{0, 10'000'000};
  if (abandoned_) return fail(Code::unsupported, "a forked child keeps no backups");
  if (need.value == 0) return HostReservation{};
  const Uncancelled uncancelled;
  need = std::min(need, 1024_GiB * 1024 * 1024);  // no machine has it, and sums of it do not overflow
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  try {
    for (;;) {
      const auto obstacle = attempt(need, deadline);
      if (!obstacle) return HostReservation{*this, need};
      if (!obstacle->may_pass || std::chrono::steady_clock::now() >= deadline) return fail(obstacle->error());
      ::nanosleep(&pause, nullptr);
    }
  } catch (...) {
    return no_bookkeeping_memory();
  }
}

std::optional<HostBudget::Obstacle> HostBudget::attempt(Bytes need, Deadline deadline) {
  const std::lock_guard deciding(deciding_);
  open_rows(read_host_limits(root_));
  const RowsLocked locked(*this, deadline);
  Promise promise(*this, need);
  // First what is to come, then what is used: what is touched in between counts twice, not never.
  const auto seen = look();
  const auto limits = read_host_limits(root_);
  Judge judge(seen, need);
  judge.consider_budget();
  if (limits.available) judge.consider_limit("MemAvailable", *limits.available, *limits.available, seen.others[0]);
  for (const auto& cgroup : limits.cgroups) {
    // Without a row of its own the group goes by the node's, in which at least as much is seen.
    const auto row = std::find_if(rows_.begin() + 1, rows_.end(), [&](const HostRow& candidate) {
      return candidate.directory() == cgroup.folder && candidate.is_open();
    });
    const auto index = row == rows_.end() ? 0 : static_cast<std::size_t>(row - rows_.begin());
    judge.consider_limit(end_of(cgroup.file), cgroup.limit, cgroup.room(), seen.others[index]);
  }
  auto obstacle = std::move(judge).worst();
  if (!obstacle) promise.keep();
  return obstacle;
}

void HostBudget::open_rows(const HostLimits& limits) {
  const std::lock_guard lock(mutex_);
  open_node();
  std::size_t count = 1;
  const std::string* last = nullptr;
  for (auto cgroup = limits.cgroups.rbegin(); cgroup != limits.cgroups.rend() && count < rows_.size(); ++cgroup) {
    if (last != nullptr && *last == cgroup->folder) continue;  // memory.high beside memory.max
    last = &cgroup->folder;
    rows_[count++].open(cgroup->folder);
  }
  for (; count < rows_.size(); ++count) rows_[count].close();
}

void HostBudget::open_node() {
  if (rows_[0].is_open()) return;
  // Every user can open them, and all processes see the same ones unless a container has its own.
  if (rows_[0].open(root_ + "/dev/shm")) return;
  const int first_error = errno;
  if (rows_[0].open(root_ + "/tmp")) return;
  const int second_error = errno;
  if (std::exchange(told_, true)) return;
  log(LogLevel::warning,
      "neither /dev/shm (%s) nor /tmp (%s) can be opened and locked: pauses of other processes are not seen before "
      "they have taken their host memory",
      std::strerror(first_error), std::strerror(second_error));
}

HostBudget::Seen HostBudget::look() const noexcept {
  const std::lock_guard lock(mutex_);
  Seen seen{own_, {}, budget_};
  for (std::size_t i = 0; i < rows_.size(); ++i) seen.others[i] = rows_[i].others();
  return seen;
}

void HostBudget::add(HostRow::Share more) noexcept {
  const std::lock_guard lock(mutex_);
  own_.held += more.held;
  own_.coming += more.coming;
  publish();
}

void HostBudget::take(HostRow::Share less) noexcept {
  if (abandoned_ || (less.held.value == 0 && less.coming.value == 0)) return;
  const std::lock_guard lock(mutex_);
  own_.held = without(own_.held, less.held);
  own_.coming = without(own_.coming, less.coming);
  publish();
}

void HostBudget::publish() noexcept {
  for (auto& row : rows_) row.publish({own_.held, with_overhead(own_.coming)});
}

void HostBudget::release_held(Bytes size) noexcept { take({size, {}}); }

Bytes HostBudget::held() const noexcept {
  if (abandoned_) return {};
  const std::lock_guard lock(mutex_);
  return own_.held;
}

unsigned HostBudget::pausing_processes() noexcept {
  if (abandoned_) return 1;
  const std::lock_guard lock(mutex_);
  return rows_[0].others().awaiting + 1;
}

void HostBudget::abandon_in_child() noexcept {
  abandoned_ = true;
  for (auto& row : rows_) row.abandon_in_child();
}

void HostBudget::arrived(Bytes& coming, Bytes size) noexcept {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  size = std::min(size, coming);
  coming -= size;
  own_.coming = without(own_.coming, size);
  publish();
}

HostReservation::HostReservation(HostReservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), coming_(std::exchange(other.coming_, {})) {}

HostReservation& HostReservation::operator=(HostReservation&& other) noexcept {
  HostReservation taken(std::move(other));
  std::swap(budget_, taken.budget_);
  std::swap(coming_, taken.coming_);
  return *this;
}

HostReservation::~HostReservation() {
  if (budget_ != nullptr) budget_->take({coming_, coming_});
}

void HostReservation::touched(Bytes size) noexcept {
  if (budget_ != nullptr) budget_->arrived(coming_, size);
}

Bytes HostReservation::coming() const noexcept {
  if (budget_ == nullptr || budget_->abandoned_) return {};
  const std::lock_guard lock(budget_->mutex_);
  return coming_;
}

}  // namespace lowtide
