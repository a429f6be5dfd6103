// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/policy.hpp"

#include <algorithm>

#include "allocator/base/log.hpp"
#include "allocator/policy/policy_text.hpp"
#include "allocator/policy/sync_plan.hpp"

namespace lowtide {
namespace {

/// How often what a process holds is said when only its bytes change.
constexpr std::uint64_t said_every_ms = 100;

RuleEvent event_of(TransitionPlan::Step step) {
  return step == TransitionPlan::Step::pause ? RuleEvent::pause : RuleEvent::resume;
}

RuleEvent event_of(Admission::Update step) {
  return step == Admission::Update::begin ? RuleEvent::update : RuleEvent::commit;
}

std::set<TagName> tags_of(const TransitionPlan& plan) {
  std::set<TagName> tags;
  for (const auto& row : plan.tags) tags.insert(row.tag);
  return tags;
}

std::uint64_t version_of(const Holdings& holdings, const TagName& tag) {
  const auto found =
      std::find_if(holdings.begin(), holdings.end(), [&](const auto& h) { return h.own && h.tag == tag; });
  return found == holdings.end() ? 0 : found->version;
}

}  // namespace

/// A transition that was admitted.
class Policy::Ticket final : public Admitted {
 public:
  Ticket(Policy& policy, std::unique_ptr<Reservation> reservation)
      : policy_(policy), reservation_(std::move(reservation)) {}
  void taken(DeviceId device, Bytes memory) noexcept override {
    try {
      if (reservation_) reservation_->realised(policy_.host_.key_of(device), memory);
    } catch (...) {  // it counts twice until the end
    }
  }
  void ended(bool done, std::span<const TagMemory>) noexcept override {
    policy_.ended(done, std::move(reservation_));
    policy_.content_changed();
  }

 private:
  Policy& policy_;
  std::unique_ptr<Reservation> reservation_;
};

Policy::Policy(const Configuration& configuration, PolicyHost& host, std::string folder)
    : host_(host), mode_(configuration.sync.mode), ledger_(std::move(folder)) {
  take(configuration);
}

Policy::~Policy() = default;

void Policy::take(const Configuration& configuration) {
  configuration_ = configuration;
  rules_ = rules_of(configuration);
  mode_.store(configuration.sync.mode);
}

void Policy::set_settings(const Configuration& configuration) {
  const std::lock_guard lock(mutex_);
  const auto before = mode();
  take(configuration);
  if (mode() == before) return;
  if (mode() == PolicyMode::off) {
    pending_.clear();
    ledger_.wait_for({});
  }
  publish_alone();
}

void Policy::publish() {
  const std::lock_guard lock(mutex_);
  publish_alone();
}

void Policy::publish_alone() {
  const auto own = mode() == PolicyMode::off ? Holdings() : host_.own_holdings();
  for (const auto& each : own) (void)ledger_.use(each.device);  // status says what is in the way
  said_at_.store(LedgerTable::now_ms());
  ledger_.publish(configuration_.sync.role, own);
}

void Policy::ended(bool done, std::unique_ptr<Reservation> reservation) {
  {
    const std::lock_guard lock(seen_mutex_);
    seen_.clear();
  }
  const std::lock_guard lock(mutex_);
  const auto pending = pending_.find(std::this_thread::get_id());
  if (pending == pending_.end()) return;
  if (done) {
    pending_.erase(pending);
    return;
  }
  if (reservation) reservation->wait_on();
  pending->second.reservation = std::move(reservation);
}

void Policy::publish_now_and_then() {
  if (LedgerTable::now_ms() >= said_at_.load() + said_every_ms) publish();
}

void Policy::allocated(const TagName& tag, DeviceId device) noexcept {
  if (mode() == PolicyMode::off) return;
  try {
    bool is_first = false;
    {
      const std::lock_guard lock(seen_mutex_);
      is_first = seen_.emplace(tag, device).second;
    }
    is_first ? publish() : publish_now_and_then();
  } catch (...) {  // out of host memory: others hear of it with the next word
  }
}

void Policy::freed() noexcept {
  if (mode() == PolicyMode::off) return;
  try {
    publish_now_and_then();
  } catch (...) {
  }
}

void Policy::content_changed() noexcept {
  if (mode() == PolicyMode::off) return;
  try {
    publish();
  } catch (...) {
  }
}

Holdings Policy::projected(const TransitionPlan& plan) {
  auto holdings = host_.own_holdings();
  for (auto& holding : holdings) {
    holding.role = configuration_.sync.role;
    for (const auto& row : plan.tags) {
      if (!(row.tag == holding.tag) || host_.key_of(row.device) != holding.device) continue;
      const bool dropped = row.discarded.value > 0;
      if (plan.step == TransitionPlan::Step::pause)
        holding.state = dropped ? TagState::paused_discarded : TagState::paused_backed;
      else
        holding.state = dropped && is_persistent(configuration_, row.tag) ? TagState::stale : TagState::active;
    }
  }
  const auto others = ledger_.others();
  holdings.insert(holdings.end(), others.begin(), others.end());
  return holdings;
}

std::vector<Breach> Policy::breaches_of(const TransitionPlan& plan, const Holdings& holdings) const {
  std::vector<Breach> all;
  for (const auto& tag : tags_of(plan)) {
    const PolicyEvent event{event_of(plan.step), tag, configuration_.sync.role, version_of(holdings, tag)};
    for (auto& breach : breaches(rules_, event, holdings)) all.push_back(std::move(breach));
  }
  std::stable_partition(all.begin(), all.end(), [](const auto& each) { return each.rule->kind == RuleKind::order; });
  return all;
}

Result<std::unique_ptr<Admitted>> Policy::admit(const TransitionPlan& plan) {
  if (mode() == PolicyMode::off) return nullptr;
  if (plan.tags.empty()) {
    given_up();  // another thread did what this one waited to do
    return nullptr;
  }
  for (const auto& row : plan.tags) (void)ledger_.use(host_.key_of(row.device));
  const std::lock_guard lock(mutex_);
  bool is_new = false;
  auto& pending = pending_of(plan, is_new);
  const auto holdings = projected(plan);
  const auto broken = breaches_of(plan, holdings);
  if (is_new) journal_.note(broken);
  if (mode() == PolicyMode::enforce) {
    auto status = admit_by_rules(plan, broken, pending);
    if (status && plan.step == TransitionPlan::Step::resume) status = admit_by_room(plan, pending, holdings);
    if (!status && status.error().code() != Code::device_memory) pending_.erase(std::this_thread::get_id());
    if (!status && is_new && status.error().code() == Code::device_memory) journal_.note_wait();
    if (!status) return fail(status.error());
  }
  auto reservation = std::move(pending.reservation);
  ledger_.wait_for({});
  return std::make_unique<Ticket>(*this, std::move(reservation));
}

Policy::Pending& Policy::pending_of(const TransitionPlan& plan, bool& is_new) {
  auto [place, added] = pending_.try_emplace(std::this_thread::get_id());
  auto& pending = place->second;
  is_new = added || pending.step != plan.step || pending.asked != plan.asked;
  if (is_new) pending = {plan.step, plan.asked, nullptr, Ledger::draw_ticket()};
  pending.waits_on.reset();
  // Read before anything is looked at that may change then.
  pending.device = host_.key_of(plan.tags.front().device);
  pending.seen = ledger_.change(pending.device);
  return pending;
}

void Policy::wait(std::chrono::steady_clock::time_point until) {
  std::string device;
  std::uint32_t seen = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = pending_.find(std::this_thread::get_id()); found != pending_.end()) {
      device = found->second.device;
      seen = found->second.seen;
      if (found->second.waits_on) ledger_.wait_for(found->second.waits_on);
    }
  }
  ledger_.wait_for_change(device, seen, until);
}

void Policy::given_up() noexcept {
  const std::lock_guard lock(mutex_);
  const auto pending = pending_.find(std::this_thread::get_id());
  if (pending == pending_.end()) return;
  try {
    if (pending->second.waits_on) ledger_.wait_for({});
  } catch (...) {  // what was said is not believed for long
  }
  pending_.erase(pending);
}

bool Policy::waits_for_others() {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(std::this_thread::get_id());
  return found != pending_.end() && found->second.waits_on;
}

Policy::Others Policy::others_on(DeviceId device) {
  if (mode() == PolicyMode::off) return {};
  const auto key = host_.key_of(device);
  Others others;
  std::set<std::uint64_t> instances;
  for (const auto& holding : ledger_.others()) {
    if (holding.device != key) continue;
    others.bytes += holding.bytes;
    instances.insert(holding.instance);
  }
  others.processes = instances.size();
  return others;
}

Status Policy::refuse(const std::string& what, const std::string& why, const std::string& remedy) {
  const auto text = what + " refused: " + why + ". Nothing changed" + remedy;
  journal_.note_refusal(text);
  return fail(Code::refused, text);
}

Status Policy::admit_by_rules(const TransitionPlan& plan, const std::vector<Breach>& broken, Pending& pending) {
  const auto what = std::string(to_text(event_of(plan.step))) + ' ' + tags_text(plan);
  if (broken.empty()) return {};
  if (broken.front().rule->kind == RuleKind::order)
    return refuse(what, to_text(broken.front()), remedy_text(broken.front(), plan.tags, host_.gate_is_closed()));
  Waiting waiting{broken.front().rule->tag.tag, {}, pending.ticket};
  for (const auto& breach : broken) {
    const bool other = breach.in_the_way && breach.in_the_way->instance != 0;
    if (other) waiting.tags.push_back({breach.in_the_way->instance, breach.in_the_way->tag});
  }
  pending.waits_on = std::move(waiting);
  if (const auto circle = ledger_.circle()) {
    ledger_.wait_for({});
    return refuse(what, "they wait for each other: " + *circle, "");
  }
  pending.reservation.reset();  // room is not kept for who waits for something else
  return fail(Code::device_memory,
              what + " waits: " + to_text(broken.front()) + more_text(broken.size() - 1) + ". Nothing changed");
}

std::vector<RoomNeed> Policy::needs_of(const TransitionPlan& plan) {
  std::vector<RoomNeed> needs;
  std::map<DeviceId, Bytes> wanted;
  for (const auto& row : plan.tags) wanted[row.device] += row.memory;
  for (const auto& [device, bytes] : wanted) {
    if (bytes.value == 0) continue;
    needs.push_back({host_.key_of(device), bytes, configuration_.sync.headroom,
                     [this, id = device] { return host_.free_memory(id); }});
  }
  return needs;
}

Status Policy::admit_by_room(const TransitionPlan& plan, Pending& pending, const Holdings& holdings) {
  auto needs = needs_of(plan);
  if (needs.empty()) return {};
  // What is parked of its tags may have become more, or less, while it waited.
  if (!pending.reservation || !pending.reservation->is_for(needs))
    pending.reservation = ledger_.reserve(std::move(needs), pending.ticket);
  const auto shortage = pending.reservation->try_grant();
  if (!shortage) return {};
  return fail(Code::device_memory,
              "resume " + tags_text(plan) + ": " + shortage_text(*shortage, holdings) + ". Nothing changed");
}

Status Policy::admit(Update step, const TagName& tag, std::uint64_t version) {
  if (mode() == PolicyMode::off) return {};
  const std::lock_guard lock(mutex_);
  const auto what = event_of(step);
  const auto broken = breaches(rules_, {what, tag, configuration_.sync.role, version}, projected({}));
  journal_.note(broken);
  if (broken.empty() || mode() != PolicyMode::enforce) return {};
  return refuse(std::string(to_text(what)) + ' ' + std::string(tag.view()), to_text(broken.front()),
                remedy_text(broken.front(), {}, host_.gate_is_closed()));
}

std::vector<TagName> Policy::bumped_by(RuleEvent event, const TagName& tag) {
  const std::lock_guard lock(mutex_);
  return lowtide::bumped_by(rules_, {event, tag, configuration_.sync.role, 0});
}

std::vector<TagName> Policy::bumped_by(TransitionPlan::Step step, const TagName& tag) {
  return bumped_by(event_of(step), tag);
}

std::vector<TagName> Policy::bumped_by(Update step, const TagName& tag) { return bumped_by(event_of(step), tag); }

}  // namespace lowtide
