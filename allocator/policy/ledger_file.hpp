// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "allocator/base/file_identity.hpp"
#include "allocator/base/result.hpp"
#include "allocator/policy/ledger_layout.hpp"

namespace lowtide {

/// Membership in one ledger file: a slot of it, and the knowledge whose slots are alive.
///
/// All of it hangs on locks that the kernel releases with the process (open file description locks), however it ends
/// and whatever PID namespace it is in:
/// - `member`, shared: somebody uses the file. Who gets it exclusively is alone: it sets a new or abandoned file up, or
///   removes it.
/// - `owned` of a slot: somebody has the slot, or clears it. For life.
/// - `alive` of a slot: what stands in it is its owner's. Taken once the slot was cleared: nobody ever reads a dead
///   process's words as those of its heir.
///
/// The kernel keeps such a lock until the last copy of the descriptor is closed: a fork child closes its copy.
///
/// Others of the same user, such as a job's epilogue or a logout, may remove or empty what lies in /dev/shm. A file
/// without its name or its length is used no more: its users leave it with their next word, and meet in a new one.
class LedgerFile {
 public:
  LedgerFile(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  LedgerFile(const LedgerFile&) = delete;
  LedgerFile& operator=(const LedgerFile&) = delete;
  ~LedgerFile();

  /// The file `name` of `folder`, which is made (0700) if it is not there. Code::refused for a folder or file that is
  /// another user's, a link, or open to others; Code::unsupported if the file system has no locks or no room. To be
  /// called once.
  Status open();
  /// Whether this is a member of a file that others can find. Who is not must touch no word of it: they may be those of
  /// an heir of its slot, or not be there.
  bool is_joined() const noexcept;
  /// Leaves, but keeps the words in sight; the last one out removes the file, those that killed processes left beside
  /// it, and the folder if nothing else is in it.
  void leave() noexcept;

  ledger::Header& header() const noexcept { return *reinterpret_cast<ledger::Header*>(base_); }
  ledger::Slot& slot(unsigned index) const noexcept {
    return *reinterpret_cast<ledger::Slot*>(base_ + ledger::header_bytes + index * ledger::slot_bytes);
  }
  unsigned own() const noexcept { return own_; }
  /// Whether a process has the slot.
  bool is_alive(unsigned index) const noexcept;

  /// For a fork child: its copy of the descriptor would keep the parent alive. Takes no lock; at whatever moment of
  /// another thread the fork came.
  void abandon_in_child() noexcept;

 private:
  /// False: the file went away meanwhile, or its maker is not done with it; try again.
  Result<bool> join();
  void close() noexcept;
  Status set_up();
  Status take_slot();

  const std::string folder_;
  const std::string name_;
  std::atomic<int> fd_{-1};
  FileIdentity identity_;
  char* base_ = nullptr;
  unsigned own_ = 0;
  bool has_slot_ = false;
};

}  // namespace lowtide
