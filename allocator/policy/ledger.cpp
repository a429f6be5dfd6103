// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/ledger.hpp"

#include <linux/futex.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "allocator/policy/ledger_circle.hpp"

namespace lowtide {
namespace {

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t draw_instance() noexcept {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = monotonic_ns() * 31 + static_cast<std::uint64_t>(::getpid());
  return number | 1;  // 0 is nobody
}

void set_name(ledger::Name& name, const std::optional<TagName>& text) {
  name = {};
  if (text) std::memcpy(name.data(), text->c_str(), text->view().size());
}

std::optional<TagName> name_in(const ledger::Name& name) { return TagName::parse(name.data()); }

/// A table that cannot be had is not asked for at each allocation.
constexpr std::uint64_t between_tries_ms = 5000;

Holding holding_of(const ledger::Said& said, const ledger::TagRow& row, const std::string& device) {
  Holding holding;
  holding.pid = static_cast<pid_t>(said.pid);
  holding.role = name_in(said.role);
  holding.tag = name_in(row.tag).value_or(TagName());
  holding.device = device;
  holding.state =
      row.state <= static_cast<std::uint64_t>(TagState::syncing) ? static_cast<TagState>(row.state) : TagState::syncing;
  holding.version = row.version;
  holding.bytes = {row.bytes};
  holding.instance = said.instance;
  return holding;
}

}  // namespace

std::string ledger_folder() { return "/dev/shm/lowtide-" + std::to_string(::geteuid()); }

Ledger::Ledger(std::string folder) : folder_(std::move(folder)), instance_(draw_instance()) {}

std::uint64_t Ledger::draw_ticket() noexcept {
  // Comparable across tables, so that two who want the same devices agree on who is first. Two bits are the state's.
  return monotonic_ns() & ((std::uint64_t{1} << 62) - 1);
}

Status Ledger::use(const std::string& device) {
  const std::lock_guard lock(mutex_);
  if (device.empty() || left_) return {};
  auto& entry = entry_of(device);
  return entry.table.is_open() ? Status() : join(device, entry);
}

Ledger::Entry& Ledger::entry_of(const std::string& device) {
  const auto [place, added] = tables_.try_emplace(device, folder_, device);
  auto& entry = place->second;
  if (added) {
    entry.next = last_entry_.load();
    last_entry_.store(&entry);
  }
  return entry;
}

Status Ledger::join(const std::string& device, Entry& entry) {
  if (!entry.table.is_open()) {
    const auto now = LedgerTable::now_ms();
    if (now < entry.next_try) return {};
    ++entry.opened;
    auto status = entry.table.open();
    entry.trouble = status ? "" : status.error().message();
    if (!status) entry.next_try = now + between_tries_ms;
    if (!status) return status;
  }
  entry.table.say(said_on(device));
  return {};
}

ledger::Said Ledger::said_on(const std::string& device) const {
  ledger::Said said;
  said.instance = instance_;
  said.pid = ::getpid();
  set_name(said.role, role_);
  for (const auto& each : own_) {
    if (each.device != device) continue;
    if (said.row_count == ledger::most_rows) {
      ++said.rows_left_out;
      continue;
    }
    auto& row = said.rows[said.row_count++];
    set_name(row.tag, each.tag);
    row.state = static_cast<std::uint64_t>(each.state);
    row.version = each.version;
    row.bytes = each.bytes.value;
  }
  if (!waiting_) return said;
  said.wait_ticket = waiting_->ticket;
  said.wait_until = waits_until_;
  set_name(said.wants, waiting_->wants);
  for (const auto& each : waiting_->tags) {
    if (said.wait_count == ledger::most_waits) break;
    auto& row = said.waits[said.wait_count++];
    row.instance = each.instance;
    set_name(row.tag, each.tag);
  }
  return said;
}

void Ledger::say(bool wakes) {
  for (auto& [device, entry] : tables_) {
    if (left_) return;
    (void)join(device, entry);  // status says what is in the way
    if (wakes) entry.table.wake();
  }
}

void Ledger::publish(const std::optional<TagName>& role, const Holdings& own) {
  const std::lock_guard lock(mutex_);
  role_ = role;
  own_ = own;
  say(true);
}

Holdings Ledger::others() const {
  const std::lock_guard lock(mutex_);
  Holdings found;
  for (const auto& [device, entry] : tables_) {
    for (const auto& said : entry.table.all()) {
      if (said.instance == instance_) continue;
      for (std::size_t i = 0; i < said.row_count; ++i) found.push_back(holding_of(said, said.rows[i], device));
    }
  }
  return found;
}

void Ledger::wait_for(const std::optional<Waiting>& waiting) {
  const std::lock_guard lock(mutex_);
  if (!waiting && !waiting_) return;
  const bool news = waiting && !waiting_;
  waiting_ = waiting;
  waits_until_ = LedgerTable::now_ms() + LedgerTable::patience_ms;
  say(news);
}

std::optional<std::string> Ledger::circle() const {
  const std::lock_guard lock(mutex_);
  std::vector<ledger::Said> all;
  for (const auto& [device, entry] : tables_) {
    for (const auto& said : entry.table.all()) all.push_back(said);
  }
  return circle_closed_by(instance_, all);
}

std::unique_ptr<Reservation> Ledger::reserve(std::vector<RoomNeed> needs, std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  std::sort(needs.begin(), needs.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
  std::unique_ptr<Reservation> reservation(new Reservation(*this, ticket));
  for (auto& need : needs) reservation->parts_.push_back({std::move(need), std::nullopt, 0});
  return reservation;
}

std::optional<RoomShortage> Reservation::try_grant() {
  const std::lock_guard lock(ledger_.mutex_);
  // All claims stand before the first is looked at: who comes later must see them on every device.
  for (auto& part : parts_) {
    const auto found = ledger_.tables_.find(part.need.device);
    if (found == ledger_.tables_.end() || !found->second.table.is_open()) continue;
    if (part.claim && part.opened == found->second.opened) continue;
    part.claim = found->second.table.claim(ticket_, part.need.bytes);
    part.opened = found->second.opened;
  }
  for (auto part = parts_.begin(); part != parts_.end(); ++part) {
    const auto found = ledger_.tables_.find(part->need.device);
    LedgerTable::Room room;
    const bool shared = found != ledger_.tables_.end() && found->second.table.is_open();
    if (shared && part->claim && part->opened == found->second.opened) {
      room = found->second.table.try_grant(*part->claim, part->need.headroom, part->need.free);
    } else if (shared) {
      room = found->second.table.look_without_claim(ticket_, part->need.bytes, part->need.free);
    } else {
      room.wanted = part->need.bytes;
      room.free = part->need.free();
      room.granted = room.free >= room.wanted + part->need.headroom;
    }
    if (room.granted) continue;
    for (auto granted = parts_.begin(); granted != part; ++granted) {
      if (granted->claim) ledger_.tables_.at(granted->need.device).table.ungrant(*granted->claim);
    }
    return RoomShortage{part->need.device, part->need.headroom, room};
  }
  return std::nullopt;
}

void Reservation::realised(const std::string& device, Bytes bytes) noexcept {
  const std::lock_guard lock(ledger_.mutex_);
  for (auto& part : parts_) {
    const auto found = ledger_.tables_.find(device);
    if (part.need.device != device || !part.claim || found == ledger_.tables_.end()) continue;
    if (part.opened == found->second.opened) found->second.table.realised(*part.claim, bytes);
  }
}

void Reservation::wait_on() noexcept {
  const std::lock_guard lock(ledger_.mutex_);
  for (auto& part : parts_) {
    const auto found = ledger_.tables_.find(part.need.device);
    if (!part.claim || found == ledger_.tables_.end() || part.opened != found->second.opened) continue;
    found->second.table.wait_on(*part.claim, part.need.bytes);
  }
}

bool Reservation::is_for(const std::vector<RoomNeed>& needs) const noexcept {
  const auto has = [this](const RoomNeed& need) {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      return part.need.device == need.device && part.need.bytes == need.bytes && part.need.headroom == need.headroom;
    });
  };
  return needs.size() == parts_.size() && std::all_of(needs.begin(), needs.end(), has);
}

Reservation::~Reservation() {
  const std::lock_guard lock(ledger_.mutex_);
  for (auto& part : parts_) {
    const auto found = ledger_.tables_.find(part.need.device);
    if (!part.claim || found == ledger_.tables_.end() || part.opened != found->second.opened) continue;
    found->second.table.give_up(*part.claim);
  }
}

void Ledger::wake() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [device, entry] : tables_) entry.table.wake();
}

std::uint32_t Ledger::change(const std::string& device) const {
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(device);
  const auto* changes = found == tables_.end() ? nullptr : found->second.table.changes();
  return changes == nullptr ? 0 : changes->load();
}

void Ledger::wait_for_change(const std::string& device, std::uint32_t seen,
                             std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  const auto limit = std::clamp(left, milliseconds{1}, milliseconds{100});  // memory also comes free unsaid
  const std::atomic<std::uint32_t>* changes = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = tables_.find(device);
    if (found != tables_.end()) changes = found->second.table.changes();
  }
  const timespec time{0, static_cast<long>(limit.count()) * 1'000'000};
  if (changes != nullptr)
    ::syscall(SYS_futex, changes, FUTEX_WAIT, seen, &time, nullptr, 0);
  else
    ::nanosleep(&time, nullptr);
}

std::vector<Ledger::Table> Ledger::tables() const {
  const std::lock_guard lock(mutex_);
  std::vector<Table> all;
  for (const auto& [device, entry] : tables_) all.push_back({device, entry.table.all().size(), entry.trouble});
  return all;
}

void Ledger::leave() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  left_ = true;
  for (auto& [device, entry] : tables_) entry.table.leave();
}

void Ledger::abandon_in_child() noexcept {
  for (Entry* entry = last_entry_; entry != nullptr; entry = entry->next) entry->table.abandon_in_child();
}

}  // namespace lowtide
