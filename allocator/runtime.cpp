// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime.hpp"

#include <algorithm>
#include <thread>

namespace lowtide {

using Clock = std::chrono::steady_clock;

namespace {

/// Waits by `wait`, which takes a deadline, in slices short enough that a hold can be called off meanwhile.
template <class Wait>
auto wait_in_slices(Clock::time_point deadline, const CalledOff& called_off, const Wait& wait)
    -> decltype(wait(deadline)) {
  for (;;) {
    const auto slice = called_off ? std::min(deadline, Clock::now() + std::chrono::milliseconds{50}) : deadline;
    auto result = wait(slice);
    if (result || slice == deadline || Clock::now() < slice || called_off()) return result;
  }
}

}  // namespace

Runtime::Runtime(Configuration configuration, BackendFactory& factory, bool simulated)
    : default_tag_(configuration.default_tag),
      unmanaged_callers_(configuration.unmanaged_callers),
      rules_(configuration.rules),
      factory_(factory),
      simulated_(simulated),
      configuration_(std::move(configuration)),
      store_(configuration_.backup),
      disk_(store_.budget(), configuration_.backup, configuration_.disk),
      blocks_(captures_, store_.right_of_way()),
      policy_(configuration_, *this),
      transitions_(blocks_, stores_, captures_) {
  transitions_.set_admission(policy_);
}

void Runtime::set_observer(Observer& observer) noexcept {
  observer_ = &observer;
  gate_.set_observer(observer);
  captures_.set_observer(observer);
  transitions_.set_observer(observer);
}

std::map<DeviceId, ContextId> Runtime::devices_in_use() const {
  std::map<DeviceId, ContextId> in_use;
  const std::lock_guard lock(devices_mutex_);
  for (const auto& [id, device] : devices_) {
    if (device.contexts.empty()) continue;
    in_use[id] = device.contexts.contains(device.primary) ? device.primary : *device.contexts.begin();
  }
  return in_use;
}

void Runtime::note_context(DeviceId device, ContextId context, bool primary) {
  const bool is_new = add_context(device, context, primary);
  if (is_new && observer_ != nullptr) observer_->context_seen(device, context);
}

bool Runtime::add_context(DeviceId device, ContextId context, bool primary) {
  const std::lock_guard lock(devices_mutex_);
  Device& entry = devices_[device];
  if (primary) entry.primary = context;
  const bool is_new = entry.contexts.insert(context).second;
  if (!entry.backend) return is_new;
  entry.attached.erase(context);  // a driver may use the handle of a dead context again
  if (auto status = attach_contexts(entry, context); !status) {
    log(LogLevel::warning, "a context of device %d cannot be watched: %s", index_of(device), status.error().message());
  }
  return is_new;
}

Result<Backend*> Runtime::attach(DeviceId device, ContextId context) {
  const std::lock_guard lock(devices_mutex_);
  Device& entry = devices_[device];
  if (entry.attached.contains(context)) return entry.backend.get();
  entry.contexts.insert(context);
  if (!entry.backend) {
    auto backend = factory_.make(device, context);
    if (!backend) return fail(backend.error());
    entry.backend = std::move(*backend);
  }
  if (auto status = attach_contexts(entry, context); !status) return fail(status.error());
  return entry.backend.get();
}

Status Runtime::attach_contexts(Device& device, ContextId wanted) {
  Status result;
  for (const ContextId each : device.contexts) {
    if (device.attached.contains(each)) continue;
    auto status = device.backend->attach(each);
    if (status)
      device.attached.insert(each);
    else if (each == wanted)
      result = status;
    else
      log(LogLevel::warning, "a context beside it cannot be watched: %s", status.error().message());
  }
  return result;
}

/// That nobody can be told for want of memory changes nothing.
void Runtime::tell_of_drop(ContextId context) noexcept {
  if (observer_ == nullptr) return;
  std::vector<BlockNote> blocks;
  try {
    blocks = blocks_.blocks_of(context);
  } catch (const std::bad_alloc&) {
  }
  observer_->context_dropping(context, blocks);
}

void Runtime::drop_context(ContextId context, bool alive) {
  const auto detach = [&] {
    const std::lock_guard lock(devices_mutex_);
    for (auto& [id, device] : devices_) {
      device.attached.erase(context);
      if (device.contexts.erase(context) > 0 && device.backend) device.backend->detach(context);
    }
  };
  tell_of_drop(context);
  // First: a capture that can never end would keep the blocks, and every pause would be refused.
  if (captures_.lost(context)) blocks_.finish_frees();
  transitions_.exclude([&] {
    if (!alive) detach();
    blocks_.drop_context(context);
    if (alive) detach();
  });
  if (observer_ != nullptr) observer_->context_dropped(context);
  if (gate_.closed()) open_gate_if_all_are_back();
}

void Runtime::drop_primary_context(DeviceId device) {
  ContextId primary;
  {
    const std::lock_guard lock(devices_mutex_);
    primary = std::exchange(devices_[device].primary, {});
  }
  if (primary.value != 0) drop_context(primary, false);
}

Status Runtime::set_peer(DeviceId owner, DeviceId accessor, bool enabled) {
  return transitions_.exclude([&] { return blocks_.set_peer(owner, accessor, enabled); });
}

Result<DeviceAddress> Runtime::allocate(Backend& backend, const Label& label, ContextId context, Bytes size,
                                        OriginId origin) {
  const Freshness initial = [&] {
    const std::lock_guard lock(configuration_mutex_);
    return configuration_.core.of(label).initial;
  }();
  auto address = blocks_.allocate(backend, label, context, size, {origin, initial});
  if (address) policy_.allocated(label.tag, backend.device());
  return address;
}

Result<BlockTable::Freed> Runtime::free(DeviceAddress address) {
  auto freed = blocks_.free(address);
  if (freed && *freed == BlockTable::Freed::done) policy_.freed();
  // It may be what the gate is closed for: nobody will resume a tag that has nothing parked.
  if (freed && gate_.closed()) open_gate_if_all_are_back();
  return freed;
}

Status Runtime::read_backup(AddressRange range, void* host, Copies copies) {
  return transitions_.exclude([&] { return blocks_.read_backup(range, host, copies); });
}

Status Runtime::write_backup(AddressRange range, const void* host) {
  return transitions_.exclude([&] { return blocks_.write_backup(range, host); });
}

Result<std::span<const std::byte>> Runtime::view_backup(DeviceAddress address, Copies copies) {
  return transitions_.exclude([&] { return blocks_.view_backup(address, copies); });
}

void Runtime::capture_ended(const void* stream) {
  if (captures_.ended(stream)) blocks_.finish_frees();
}

Status Runtime::set(std::string_view key, std::string_view value) {
  bool keeps_no_more = false;
  {
    const std::lock_guard lock(configuration_mutex_);
    const bool kept = retains();
    if (auto status = apply(configuration_, key, value); !status) return status;
    store_.set_settings(configuration_.backup);
    disk_.set_settings(configuration_.backup, configuration_.disk);
    policy_.set_settings(configuration_);
    set_log_level(configuration_.log);
    keeps_no_more = kept && !retains();
  }
  // During a capture it goes with the next pause, or a trim.
  if (keeps_no_more) (void)transitions_.trim();
  return {};
}

CoreSettings Runtime::settings() const {
  CoreSettings current = [this] {
    const std::lock_guard lock(configuration_mutex_);
    return configuration_.core;
  }();
  if (relocations_ != nullptr) relocations_->mark(current);
  return current;
}

Status Runtime::check_possible(const std::optional<TagName>& tag) const {
  if (gate_.is_open_for_good()) return fail(Code::busy, "the process is ending");
  if (!tag || blocks_.knows(*tag)) return {};
  {
    const std::lock_guard lock(configuration_mutex_);
    if (action_is_known(configuration_, *tag)) return {};
  }
  const auto regions = blocks_.regions();
  return fail(Error::format(Code::invalid, "no block carries the tag %s; there are: %s", tag->c_str(),
                            regions.empty() ? "none" : tags_of(regions).c_str()));
}

std::string Runtime::tags_of(const std::vector<RegionInfo>& regions) const {
  std::set<TagName> tags;
  for (const auto& region : regions) tags.insert(region.label.tag);
  std::string text;
  for (const auto& tag : tags) text.append(text.empty() ? "" : ", ").append(tag.view());
  return text;
}

std::vector<Backend*> Runtime::backends() const {
  const std::lock_guard lock(devices_mutex_);
  std::vector<Backend*> all;
  for (const auto& [id, device] : devices_) {
    if (device.backend) all.push_back(device.backend.get());
  }
  return all;
}

Status Runtime::synchronise_all() {
  for (Backend* backend : backends()) {
    if (auto status = backend->synchronise(); !status) return status;
  }
  return {};
}

Result<Captures::Block> Runtime::wait_for_captures(Clock::time_point deadline) {
  std::optional<ObservedWait> wait;
  for (;;) {
    auto block = captures_.block();
    if (block || Clock::now() >= deadline) return block;
    if (!wait) wait.emplace(observer_, Observer::Wait::capture);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

Result<Captures::Block> Runtime::come_to_rest(std::chrono::milliseconds limit, const CalledOff& called_off) {
  const auto deadline = Clock::now() + limit;
  const auto in_slices = [&](const auto& wait) { return wait_in_slices(deadline, called_off, wait); };
  auto no_captures = in_slices([this](auto until) { return wait_for_captures(until); });
  const ObservedWait wait(observer_, Observer::Wait::drain);
  Status status;
  if (!no_captures) status = fail(no_captures.error());
  if (status) status = in_slices([this](auto until) { return gate_.close(until); });
  if (status) {
    status = in_slices([this](auto until) { return drain_.wait([this] { return synchronise_all(); }, until); });
  }
  if (called_off && called_off()) {
    log(LogLevel::info, "a hold was called off by who asked for it; the process goes on as before");
    return fail(Code::refused, "the hold was called off; the process goes on as before");
  }
  if (status) return no_captures;
  const Code code = status.error().code();
  if (code != Code::busy && code != Code::refused) return fail(status.error());
  return fail(Error::format(code, "the process did not come to rest within %.1f s and goes on as before: %s",
                            std::chrono::duration<double>(limit).count(), status.error().message()));
}

/// Keeps the gate closed from before the first thread waits there until it is known what was parked.
class Runtime::Hold {
 public:
  Hold(Runtime& runtime, const std::optional<TagName>& tag) : runtime_(runtime) {
    const std::lock_guard lock(runtime_.held_mutex_);
    before_ = runtime_.held_;
    runtime_.held_.add(tag);
    runtime_.hold_under_way_ = true;
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    {
      const std::lock_guard lock(runtime_.held_mutex_);
      runtime_.hold_under_way_ = false;
      // What the program has parked itself is then not held: nobody would resume it from outside.
      if (!in_force_) runtime_.held_ = std::move(before_);
    }
    runtime_.open_gate_if_all_are_back();
  }

  /// A transition begins, which may park something. Taken back when it is known that it did not.
  void set_in_force(bool in_force) noexcept { in_force_ = in_force; }

 private:
  Runtime& runtime_;
  KeptShut before_;
  bool in_force_ = false;
};

Result<TransitionReport> Runtime::pause(std::optional<TagName> tag, bool hold,
                                        std::optional<std::chrono::milliseconds> drain, const ProgressSink& progress,
                                        const CalledOff& called_off) {
  if (auto status = check_possible(tag); !status) return fail(status.error());
  const CoreSettings current = settings();
  return observed(Observer::Step::pause, tag, [&] {
    return hold ? pause_held(tag, current, drain.value_or(current.gate_drain), progress, called_off)
                : transitions_.pause(tag, current, progress);
  });
}

Result<TransitionReport> Runtime::pause_held(const std::optional<TagName>& tag, const CoreSettings& current,
                                             std::chrono::milliseconds drain, const ProgressSink& progress,
                                             const CalledOff& called_off) {
  const std::lock_guard lock(hold_mutex_);
  Hold held(*this, tag);
  const auto at_rest = come_to_rest(drain, called_off);
  if (!at_rest) return fail(at_rest.error());
  held.set_in_force(true);
  auto report = transitions_.pause(tag, current, progress);
  if (!report) held.set_in_force(report.error().code() == Code::driver);  // other errors changed nothing
  return report;
}

Result<TransitionReport> Runtime::resume(std::optional<TagName> tag, const ProgressSink& progress) {
  return resume_with(tag, settings(), progress);
}

Result<TransitionReport> Runtime::resume_with(const std::optional<TagName>& tag, const CoreSettings& current,
                                              const ProgressSink& progress) {
  if (auto status = check_possible(tag); !status) return fail(status.error());
  auto report = observed(Observer::Step::resume, tag, [&] { return transitions_.resume(tag, current, progress); });
  // Who waits at the gate would use the old addresses.
  if (report && relocations_ != nullptr) relocations_->tell(report->moves);
  if (report) open_gate_if_all_are_back();
  if (report) let_go_if_unwritten(tag);
  return report;
}

Result<TransitionReport> Runtime::resume_or_refuse(const std::optional<TagName>& tag, std::chrono::milliseconds wait) {
  CoreSettings current = settings();
  if (!current.device_wait) current.device_wait = wait;
  auto report = resume_with(tag, current, {});
  if (!report && blocks_.has_parked(tag)) {
    const std::lock_guard lock(held_mutex_);
    refused_.add(tag);
    gate_.refuse();
  }
  open_gate_if_all_are_back();  // if another thread has just brought it back, or freed it
  return report;
}

Result<TrimReport> Runtime::trim() {
  if (auto status = check_possible(std::nullopt); !status) return fail(status.error());
  return transitions_.trim();
}

void Runtime::KeptShut::add(const std::optional<TagName>& tag) {
  if (tag)
    tags.insert(*tag);
  else
    all = true;
}

void Runtime::KeptShut::leave_out_those_back(const BlockTable& blocks) noexcept {
  // Asked of the table, not of a report: a pause that failed half-way also leaves blocks that the process must not
  // touch.
  if (all) all = blocks.has_parked(std::nullopt);
  std::erase_if(tags, [&](const TagName& tag) { return !blocks.has_parked(tag); });
}

bool Runtime::is_held(const TagName& tag) const {
  const std::lock_guard lock(held_mutex_);
  return held_.all || held_.tags.contains(tag) || refused_.all || refused_.tags.contains(tag);
}

void Runtime::open_gate_if_all_are_back() noexcept {
  const std::lock_guard lock(held_mutex_);
  refused_.leave_out_those_back(blocks_);
  if (refused_.empty()) gate_.end_refusal();
  if (hold_under_way_) return;
  held_.leave_out_those_back(blocks_);
  if (held_.empty()) gate_.end_hold();
}

}  // namespace lowtide
