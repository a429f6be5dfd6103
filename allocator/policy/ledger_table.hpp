// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/base/bytes.hpp"
#include "allocator/policy/ledger_file.hpp"

namespace lowtide {

/// The ledger of one device: what each process of this user holds there, what it has reserved, and for whom it waits.
/// Only its owner writes a slot, and no process ever waits for another one's write. Calls of one process exclude each
/// other; its owner sees to that.
///
/// Room is given by claim. A claim is written down before anybody looks; who then looks sees it. It fits if the
/// device's free memory has room for it beside all that others have reserved and all that those want who came before
/// it. It is `granting` for a second look before it is `granted`: of two that look at once, at least one sees the
/// other, and gives way.
class LedgerTable {
 public:
  LedgerTable(std::string folder, std::string key) : folder_(std::move(folder)), key_(std::move(key)) {}
  LedgerTable(const LedgerTable&) = delete;
  LedgerTable& operator=(const LedgerTable&) = delete;

  const std::string& key() const noexcept { return key_; }
  /// Opens the file, and opens it anew where the host has closed our descriptor or somebody took the file away. An
  /// error is told anew by each call.
  Status open();
  /// While it is not, nothing is said, claimed or heard.
  bool is_open() const noexcept { return file_ && file_->is_joined(); }
  /// For good: what this process said and reserved is gone.
  void leave() noexcept {
    if (file_) file_->leave();
  }
  /// Takes no lock; at whatever moment of another thread the fork came.
  void abandon_in_child() noexcept {
    if (LedgerFile* const file = latest_) file->abandon_in_child();
  }

  /// Replaces what this process says. Kept, and said again in a file that had to be opened anew.
  void say(const ledger::Said& said);
  /// What all living processes say, this one's first.
  std::vector<ledger::Said> all() const;

  // Claims. A number is good until its claim is given up; a file that is opened anew has none.
  using ClaimId = unsigned;
  /// Nothing if this process has no place left for one.
  std::optional<ClaimId> claim(std::uint64_t ticket, Bytes bytes);
  /// What a claim meets.
  struct Room {
    bool granted = false;
    Bytes wanted;
    Bytes free;      ///< of the device
    Bytes reserved;  ///< of it, by others
    Bytes before;    ///< wanted by those who came before
  };
  /// Grants the claim if `headroom` stays free beside it. `free` says what the device has free now, and is asked after
  /// the claims were read: memory that somebody takes meanwhile is then counted twice rather than not at all.
  Room try_grant(ClaimId claim, Bytes headroom, const std::function<Bytes()>& free);
  /// It is granted, but not all of its kind are: it waits on.
  void ungrant(ClaimId claim) noexcept;
  /// What it got is the driver's again: it waits on, for `bytes`.
  void wait_on(ClaimId claim, Bytes bytes) noexcept;
  /// `bytes` of a granted claim are out of the device's free memory.
  void realised(ClaimId claim, Bytes bytes) noexcept;
  void give_up(ClaimId claim) noexcept;
  /// What a claim for `bytes` would meet that came now. For who has no place for one.
  Room look_without_claim(std::uint64_t ticket, Bytes bytes, const std::function<Bytes()>& free) const;

  /// Wakes all who wait: something changed that they should look at.
  void wake() noexcept;
  /// The count of changes, which is a futex; null if there is no table. Stays readable while this lives.
  const std::atomic<std::uint32_t>* changes() const noexcept { return is_open() ? &file_->header().changes : nullptr; }

  /// Of the monotonic clock.
  static std::uint64_t now_ms() noexcept;
  /// How long who waits is believed without a new word. A waiter looks more often.
  static constexpr std::uint64_t patience_ms = 400;

 private:
  ledger::Claim& own_claim(ClaimId id) const noexcept { return file_->slot(file_->own()).claims[id]; }
  /// What others have and want; `mine` is not counted.
  Room look(const ledger::Claim* mine, std::uint64_t ticket, Bytes wanted, const std::function<Bytes()>& free) const;
  std::optional<ledger::Said> read(unsigned slot) const;

  const std::string folder_;
  const std::string key_;
  std::unique_ptr<LedgerFile> file_;
  std::atomic<LedgerFile*> latest_{nullptr};         ///< being opened, or `file_`
  std::vector<std::unique_ptr<LedgerFile>> former_;  ///< that were lost: somebody may wait there
  std::optional<ledger::Said> said_;
};

}  // namespace lowtide
