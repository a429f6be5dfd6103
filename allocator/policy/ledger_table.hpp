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

  const std::string& key() const noexcept { return key_; }
  /// Opens the file, and opens it anew where the host has closed our descriptor. An error is told anew by each call.
  Status open();
  bool is_open() const noexcept { return file_ != nullptr; }
  /// Open, and the host has not closed our descriptor.
  bool is_alive() const noexcept { return file_ && file_->is_alive(file_->own()); }
  /// For good: what this process said and reserved is gone.
  void leave() noexcept {
    if (file_) file_->leave();
  }
  void abandon_in_child() noexcept {
    if (file_) file_->abandon_in_child();
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
  /// `bytes` of a granted claim are out of the device's free memory.
  void realised(ClaimId claim, Bytes bytes) noexcept;
  void give_up(ClaimId claim) noexcept;

  /// Wakes all who wait: something changed that they should look at.
  void wake() noexcept;
  /// The count of changes, which is a futex; null if there is no table. Stays readable while this lives.
  const std::atomic<std::uint32_t>* changes() const noexcept { return file_ ? &file_->header().changes : nullptr; }

  /// Of the monotonic clock.
  static std::uint64_t now_ms() noexcept;
  /// How long who waits is believed without a new word. A waiter looks more often.
  static constexpr std::uint64_t patience_ms = 400;

 private:
  Room look(ClaimId claim, const std::function<Bytes()>& free) const;
  std::optional<ledger::Said> read(unsigned slot) const;

  const std::string folder_;
  const std::string key_;
  std::unique_ptr<LedgerFile> file_;
  std::vector<std::unique_ptr<LedgerFile>> former_;  ///< whose descriptor the host closed: somebody may wait there
  std::optional<ledger::Said> said_;
};

}  // namespace lowtide
