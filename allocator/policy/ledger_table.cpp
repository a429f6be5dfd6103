// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/ledger_table.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

namespace lowtide {
namespace {

using ledger::ClaimState;

/// No device has it, and the sum of all claims does not overflow. Memory that anybody may write to says anything.
constexpr Bytes most_bytes{std::uint64_t{1} << 50};

constexpr std::uint64_t word_of(std::uint64_t ticket, ClaimState state) {
  return ticket * 4 + static_cast<std::uint64_t>(state);
}
constexpr std::uint64_t ticket_of(std::uint64_t word) { return word / 4; }
constexpr ClaimState state_of(std::uint64_t word) { return static_cast<ClaimState>(word % 4); }

void set_state(ledger::Claim& claim, ClaimState state) noexcept {
  claim.word.store(word_of(ticket_of(claim.word.load()), state));
}

/// For a file's name: what is no letter, digit, dot or dash becomes a dash.
std::string file_name(const std::string& key) {
  auto name = "ledger-" + std::to_string(ledger::layout_version) + '-' + key.substr(0, 160);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '.'; }, '-');
  return name;
}

}  // namespace

std::uint64_t LedgerTable::now_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

Status LedgerTable::open() {
  if (is_open()) return {};
  if (file_) {
    file_->leave();
    former_.push_back(std::move(file_));
  }
  auto file = std::make_unique<LedgerFile>(folder_, file_name(key_));
  latest_ = file.get();
  if (auto status = file->open(); !status) {
    latest_ = nullptr;
    return status;
  }
  file_ = std::move(file);
  if (said_) say(ledger::Said(*said_));
  return {};
}

void LedgerTable::say(const ledger::Said& said) {
  said_ = said;
  if (!is_open()) return;
  auto& slot = file_->slot(file_->own());
  std::array<std::uint64_t, sizeof said / sizeof(std::uint64_t)> words;
  std::memcpy(words.data(), &said, sizeof said);
  const auto next = slot.sequence.load(std::memory_order_relaxed) + 1;
  auto& copy = slot.said[next % 2];
  // Who reads a word of this also reads a sequence that is later than the one it began with.
  for (std::size_t i = 0; i < words.size(); ++i) copy[i].store(words[i], std::memory_order_release);
  slot.sequence.store(next);
}

std::optional<ledger::Said> LedgerTable::read(unsigned index) const {
  const auto& slot = file_->slot(index);
  std::array<std::uint64_t, sizeof(ledger::Said) / sizeof(std::uint64_t)> words;
  constexpr int attempts = 1000;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto before = slot.sequence.load(std::memory_order_acquire);
    const auto& copy = slot.said[before % 2];
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = copy[i].load(std::memory_order_acquire);
    if (slot.sequence.load(std::memory_order_relaxed) != before) continue;
    ledger::Said said;
    std::memcpy(static_cast<void*>(&said), words.data(), sizeof said);
    said.row_count = std::min<std::uint64_t>(said.row_count, ledger::most_rows);
    said.wait_count = std::min<std::uint64_t>(said.wait_count, ledger::most_waits);
    for (auto* name : {&said.role, &said.wants}) name->back() = '\0';
    for (auto& row : said.rows) row.tag.back() = '\0';
    for (auto& wait : said.waits) wait.tag.back() = '\0';
    return said.instance == 0 ? std::nullopt : std::optional(said);
  }
  return std::nullopt;
}

std::vector<ledger::Said> LedgerTable::all() const {
  std::vector<ledger::Said> found;
  if (!is_open()) return found;
  if (said_) found.push_back(*said_);
  const auto top = std::min(file_->header().top.load(), ledger::most_processes);
  for (unsigned i = 0; i < top; ++i) {
    if (i == file_->own() || !file_->is_alive(i)) continue;
    if (auto said = read(i)) found.push_back(*said);
  }
  return found;
}

std::optional<LedgerTable::ClaimId> LedgerTable::claim(std::uint64_t ticket, Bytes bytes) {
  if (!is_open()) return std::nullopt;
  auto& claims = file_->slot(file_->own()).claims;
  for (unsigned i = 0; i < claims.size(); ++i) {
    if (state_of(claims[i].word.load()) != ClaimState::free) continue;
    claims[i].bytes.store(bytes.value);
    claims[i].until.store(now_ms() + patience_ms);
    claims[i].word.store(word_of(ticket, ClaimState::waiting));
    return i;
  }
  return std::nullopt;
}

LedgerTable::Room LedgerTable::look(const ledger::Claim* mine, std::uint64_t ticket, Bytes wanted,
                                    const std::function<Bytes()>& free) const {
  Room room;
  room.wanted = wanted;
  const auto now = now_ms();
  const auto top = std::min(file_->header().top.load(), ledger::most_processes);
  for (unsigned i = 0; i < top; ++i) {
    if (!file_->is_alive(i)) continue;
    for (const auto& claim : file_->slot(i).claims) {
      const auto word = claim.word.load();
      const Bytes bytes = std::min(Bytes{claim.bytes.load()}, most_bytes);
      if (&claim == mine || state_of(word) == ClaimState::free) continue;
      if (state_of(word) != ClaimState::waiting)
        room.reserved += bytes;
      else if (ticket_of(word) < ticket && claim.until.load() > now)
        room.before += bytes;
    }
  }
  room.free = free();
  return room;
}

LedgerTable::Room LedgerTable::try_grant(ClaimId id, Bytes headroom, const std::function<Bytes()>& free) {
  auto& claim = own_claim(id);
  const auto look_again = [&] { return look(&claim, ticket_of(claim.word.load()), {claim.bytes.load()}, free); };
  claim.until.store(now_ms() + patience_ms);
  const auto fits = [&](const Room& room) { return room.free >= room.wanted + headroom + room.reserved + room.before; };
  auto room = look_again();
  if (!fits(room)) return room;
  set_state(claim, ClaimState::granting);
  room = look_again();
  room.granted = fits(room);
  set_state(claim, room.granted ? ClaimState::granted : ClaimState::waiting);
  return room;
}

void LedgerTable::ungrant(ClaimId id) noexcept {
  if (!is_open()) return;
  auto& claim = own_claim(id);
  if (state_of(claim.word.load()) == ClaimState::granted) set_state(claim, ClaimState::waiting);
}

void LedgerTable::wait_on(ClaimId id, Bytes bytes) noexcept {
  if (!is_open()) return;
  auto& claim = own_claim(id);
  claim.bytes.store(bytes.value);
  claim.until.store(now_ms() + patience_ms);
  set_state(claim, ClaimState::waiting);
  wake();
}

void LedgerTable::realised(ClaimId id, Bytes bytes) noexcept {
  if (!is_open()) return;
  auto& left = own_claim(id).bytes;
  left.store(left.load() - std::min(left.load(), bytes.value));
}

void LedgerTable::give_up(ClaimId id) noexcept {
  if (!is_open()) return;
  own_claim(id).word.store(0);
  wake();
}

LedgerTable::Room LedgerTable::look_without_claim(std::uint64_t ticket, Bytes bytes,
                                                  const std::function<Bytes()>& free) const {
  return look(nullptr, ticket, bytes, free);
}

void LedgerTable::wake() noexcept {
  if (!is_open()) return;
  auto& changes = file_->header().changes;
  changes.fetch_add(1);
  ::syscall(SYS_futex, &changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lowtide
