// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

// What lies in a ledger's file: one header, then a slot for each process. A change of anything here is a new
// `layout_version`, which is a part of the file's name: two versions of the library each have their own table.
namespace lowtide::ledger {

constexpr std::uint32_t layout_version = 1;
constexpr unsigned most_processes = 128;
constexpr unsigned most_rows = 32;
constexpr unsigned most_claims = 8;
constexpr unsigned most_waits = 4;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

using Name = std::array<char, 64>;  ///< ends with zeros; all zeros: none

struct TagRow {
  Name tag{};
  std::uint64_t state = 0;  ///< a TagState
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
};

/// For whose tag a process waits.
struct WaitRow {
  std::uint64_t instance = 0;
  Name tag{};
};

/// What a process says of itself. Written as a whole.
struct Said {
  std::uint64_t instance = 0;  ///< drawn anew by each process; the same in the tables of all its devices
  std::int64_t pid = 0;        ///< in its own PID namespace
  Name role{};
  std::uint64_t rows_left_out = 0;  ///< tags for which there was no row
  std::uint64_t row_count = 0;
  std::array<TagRow, most_rows> rows{};
  // What it waits for, if anything.
  std::uint64_t wait_ticket = 0;  ///< smaller: came first
  std::uint64_t wait_until = 0;   ///< when nobody has to believe it any more; ms of the monotonic clock
  Name wants{};                   ///< the tag that it wants to resume
  std::uint64_t wait_count = 0;
  std::array<WaitRow, most_waits> waits{};
};
static_assert(std::is_trivially_copyable_v<Said> && sizeof(Said) % sizeof(Word) == 0);

/// free: nobody's. waiting: wants room. granting: looks whether it may, and counts as if it did. granted: has it.
enum class ClaimState : std::uint64_t { free, waiting, granting, granted };

/// Room that is wanted or reserved. `word` is ticket * 4 + state; it is written last and read first.
struct Claim {
  Word word;
  Word bytes;  ///< that are not out of the device's free memory yet
  Word until;  ///< of one that waits: when nobody has to believe it any more; ms of the monotonic clock
};

/// `sequence` says which of the two copies is the valid one, by its lowest bit; the other one is being written, or was
/// when its writer was killed.
struct Slot {
  Word sequence;
  std::array<Claim, most_claims> claims;
  std::array<std::array<Word, sizeof(Said) / sizeof(Word)>, 2> said;
};

struct Header {
  Word magic;                          ///< written last
  std::atomic<std::uint32_t> changes;  ///< the futex: goes up when somebody who waits should look again
  std::atomic<std::uint32_t> top;      ///< no slot from here on was ever used
};

constexpr std::uint64_t magic = 0x6c6f777469646500 + layout_version;
constexpr std::size_t header_bytes = 4096;
constexpr std::size_t slot_bytes = 8192;
constexpr std::size_t file_bytes = header_bytes + most_processes * slot_bytes;
static_assert(sizeof(Header) <= header_bytes && sizeof(Slot) <= slot_bytes);

}  // namespace lowtide::ledger
