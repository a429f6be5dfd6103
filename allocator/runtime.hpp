// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "allocator/backup/backup_stores.hpp"
#include "allocator/backup/file_store.hpp"
#include "allocator/backup/pinned_store.hpp"
#include "allocator/control/controlled.hpp"
#include "allocator/core/block_table.hpp"
#include "allocator/core/captures.hpp"
#include "allocator/core/drain.hpp"
#include "allocator/core/gate.hpp"
#include "allocator/core/relocations.hpp"
#include "allocator/core/transition.hpp"
#include "allocator/policy/configuration.hpp"
#include "allocator/policy/device_keys.hpp"
#include "allocator/policy/origins.hpp"
#include "allocator/policy/policy.hpp"

namespace lowtide {

/// The facade that joins the layers: one per process, made at the first GPU call, never destroyed. Thread-safe.
class Runtime final : public Controlled, private PolicyHost {
 public:
  /// `factory` makes the backend of a device at its first use; it outlives the runtime.
  Runtime(Configuration configuration, BackendFactory& factory, bool simulated);

  /// Whom to tell of blocks that move; it outlives the runtime. Before the first transition.
  void set_relocations(const Relocations* relocations) noexcept { relocations_ = relocations; }

  /// By which the policy knows the devices, which it else keeps to itself; it outlives the runtime. Before the first
  /// transition.
  void set_device_keys(DeviceKeys& keys) noexcept { device_keys_ = &keys; }

  /// Whom to tell of what is done; it outlives the runtime. Before the first call that does something.
  void set_observer(Observer& observer) noexcept;

  Gate& gate() noexcept { return gate_; }
  Captures& captures() noexcept { return captures_; }
  BlockTable& blocks() noexcept { return blocks_; }
  Policy& policy() noexcept { return policy_; }

  // Contexts and devices.
  /// `context` exists on `device`; `primary` if it is the device's primary one. A device is not touched before it is
  /// used.
  void note_context(DeviceId device, ContextId context, bool primary);
  /// The backend of `device`, made at its first use; `context` is live on it and current on the calling thread. Cheap
  /// once both are known.
  Result<Backend*> attach(DeviceId device, ContextId context);
  /// `context` is about to be destroyed, or was just now (`alive` false): its blocks go. Waits for a transition that
  /// runs.
  void drop_context(ContextId context, bool alive);
  /// The device's primary context died with its last release.
  void drop_primary_context(DeviceId device);
  Status set_peer(DeviceId owner, DeviceId accessor, bool enabled);
  /// The devices that were seen in use, each with a live context.
  std::map<DeviceId, ContextId> devices_in_use() const;

  // Blocks.
  /// The default tag, if the process has one.
  const std::optional<TagName>& default_tag() const noexcept { return default_tag_; }
  /// Globs of library names whose allocations the default tag leaves alone.
  std::span<const std::string> unmanaged_callers() const noexcept { return unmanaged_callers_; }
  /// What gives a tag to an allocation without a scope, before the default tag.
  std::span<const MatchRule> rules() const noexcept { return rules_; }
  Origins& origins() noexcept { return origins_; }
  Result<DeviceAddress> allocate(Backend& backend, const Label& label, ContextId context, Bytes size,
                                 OriginId origin = {});
  Result<BlockTable::Freed> free(DeviceAddress address);
  /// Bytes of a parked block. Waits for a transition that runs: one that found the block busy would leave it out.
  using Copies = BlockTable::Copies;
  Status read_backup(AddressRange range, void* host, Copies copies = Copies::parked);
  Status write_backup(AddressRange range, const void* host);
  Result<std::span<const std::byte>> view_backup(DeviceAddress address, Copies copies = Copies::parked);
  /// A capture ended: frees that waited for it are carried out.
  void capture_ended(const void* stream);

  // Pause and resume by the process itself.
  Result<TransitionReport> pause(const std::optional<TagName>& tag) { return pause(tag, false, std::nullopt, {}, {}); }
  Result<TransitionReport> resume(const std::optional<TagName>& tag) { return resume(tag, {}); }
  /// The same for callers that look at no error: waits for device memory up to `wait`, unless the configuration says
  /// how long, and after an error every launch, copy and memset is refused until all of `tag` is back.
  Result<TransitionReport> resume_or_refuse(const std::optional<TagName>& tag, std::chrono::milliseconds wait);
  // Updates of a tag's content (runtime_updates.cpp), as Transitions says. Code::invalid for a tag that nothing carries
  // and nobody configured.
  Status begin_update(const TagName& tag, std::uint64_t version);
  Status commit_update(const TagName& tag, std::uint64_t version);
  Status abort_update(const TagName& tag);
  Status mark_valid(const TagName& tag, std::uint64_t version);
  Status drop_backup(const TagName& tag);
  /// Whom transitions and updates ask; it outlives the runtime. Before the first of them.
  void set_admission(Admission& admission) noexcept { transitions_.set_admission(admission); }
  /// As in the configuration; applies to later allocations and transitions.
  Status set(std::string_view key, std::string_view value) override;
  /// The program is in the phase `name`. If the configuration declares it, this process's steps of it are carried out,
  /// in their order; what is there already is skipped. Code::busy where an update is needed first: the steps before it
  /// are done, and the same call goes on after it.
  Status enter_phase(const TagName& name) { return enter_phase(name, PhasePart::all, false); }
  /// Whether host memory is kept for the next pause.
  bool retains() const noexcept { return store_.retains_host(); }

  // Controlled: the same from outside.
  std::string status_json() override;
  Result<TransitionReport> pause(std::optional<TagName> tag, bool hold, std::optional<std::chrono::milliseconds> drain,
                                 const ProgressSink& progress, const CalledOff& called_off) override;
  Result<TransitionReport> resume(std::optional<TagName> tag, const ProgressSink& progress) override;
  Result<TrimReport> trim() override;
  Status enter_phase(const TagName& name, PhasePart part, bool hold) override;
  std::string why_json(const TagName& tag) override;

  /// The host began to exit: whoever waits at the gate goes on, so that exit handlers of the host can finish, and no
  /// transition begins any more.
  void leave_for_exit() noexcept {
    gate_.open_for_good();
    policy_.leave();
  }
  /// In the child of a fork: nobody waits any more. Takes no lock.
  void abandon_in_child() noexcept {
    store_.abandon_in_child();
    gate_.abandon();
    captures_.abandon();
    policy_.abandon_in_child();
  }

 private:
  struct Device {
    std::unique_ptr<Backend> backend;
    std::set<ContextId> contexts;  ///< seen live
    std::set<ContextId> attached;  ///< those of them that the backend knows
    ContextId primary;
  };
  /// Attaches the contexts that the backend does not know yet. An error only if `wanted` cannot be attached.
  static Status attach_contexts(Device& device, ContextId wanted);
  // PolicyHost.
  Holdings own_holdings() override;
  std::string key_of(DeviceId device) override;
  Bytes free_memory(DeviceId device) override;
  bool gate_is_closed() override { return gate_.closed(); }
  Status carry_out(const Policy::OwnStep& step, bool hold);
  /// The program writes its update itself: what it was held for must not keep it from that. Who waits at the gate may
  /// be in the middle of work on what is still parked: then the hold goes on, and the answer is how many do.
  std::size_t end_hold_for_update() noexcept;
  /// After a resume: a process whose content came back stale is to write it, and what is still parked may be refused
  /// until then.
  void let_go_if_unwritten(const std::optional<TagName>& tag) noexcept;
  /// `status`, once the policy was told that content may have changed.
  Status told(Status status);

  /// Does `work`, a pause or a resume, and tells the observer.
  template <class Work>
  Result<TransitionReport> observed(Observer::Step step, const std::optional<TagName>& tag, Work work);
  /// `status`, once the observer was told.
  Status observed(Observer::Update step, const TagName& tag, std::uint64_t version, Status status);

  void tell_of_drop(ContextId context) noexcept;
  /// Whether the context was not known.
  bool add_context(DeviceId device, ContextId context, bool primary);

  CoreSettings settings() const;
  Result<TransitionReport> pause_held(const std::optional<TagName>& tag, const CoreSettings& current,
                                      std::chrono::milliseconds drain, const ProgressSink& progress,
                                      const CalledOff& called_off);
  Result<TransitionReport> resume_with(const std::optional<TagName>& tag, const CoreSettings& current,
                                       const ProgressSink& progress);
  /// That a transition of `tag` may begin.
  Status check_possible(const std::optional<TagName>& tag) const;
  std::vector<Backend*> backends() const;
  Status synchronise_all();
  /// Closes the gate, once no capture is under way, and waits until nothing runs on any device.
  Result<Captures::Block> come_to_rest(std::chrono::milliseconds limit, const CalledOff& called_off);
  Result<Captures::Block> wait_for_captures(std::chrono::steady_clock::time_point deadline);
  /// Opens the gate unless a hold is under way or held tags are parked. Never allocates: whatever became of a hold, the
  /// process neither meets parked memory nor waits for nothing.
  void open_gate_if_all_are_back() noexcept;
  bool is_held(const TagName& tag) const;
  /// Tags for whose sake the gate stays closed until nothing of them is parked.
  struct KeptShut {
    bool all = false;  ///< as if every tag were in `tags`
    std::set<TagName> tags;

    void add(const std::optional<TagName>& tag);
    void leave_out_those_back(const BlockTable& blocks) noexcept;
    bool empty() const noexcept { return !all && tags.empty(); }
  };

  const std::optional<TagName> default_tag_;
  const std::vector<std::string> unmanaged_callers_;
  const std::vector<MatchRule> rules_;
  Origins origins_;
  BackendFactory& factory_;
  Observer* observer_ = nullptr;
  const Relocations* relocations_ = nullptr;
  DeviceKeys* device_keys_ = nullptr;
  const bool simulated_;

  mutable std::mutex configuration_mutex_;
  Configuration configuration_;

  Gate gate_;
  Captures captures_;

  mutable std::mutex devices_mutex_;
  std::map<DeviceId, Device> devices_;
  std::mutex keys_mutex_;
  std::map<DeviceId, std::string> keys_;  ///< as far as they were asked for

  PinnedStore store_;
  FileStore disk_;
  BackupStores stores_{store_, disk_};
  BlockTable blocks_;
  Policy policy_;
  Transitions transitions_;

  std::mutex hold_mutex_;  ///< one hold at a time
  Drain drain_;
  class Hold;
  mutable std::mutex held_mutex_;
  bool hold_under_way_ = false;
  KeptShut held_;     ///< paused under a hold
  KeptShut refused_;  ///< a resume that nobody looks at has failed

  std::string tags_of(const std::vector<RegionInfo>& regions) const;
  void write_devices(class JsonWriter& json);
  void write_stores(class JsonWriter& json);
  void write_tags(class JsonWriter& json, const std::vector<RegionInfo>& regions);
  void write_origins(class JsonWriter& json);
  void write_policy(class JsonWriter& json);
};

template <class Work>
Result<TransitionReport> Runtime::observed(Observer::Step step, const std::optional<TagName>& tag, Work work) {
  if (observer_ == nullptr) return work();
  const auto begin = std::chrono::steady_clock::now();
  observer_->transition_begins(step, tag);
  auto report = work();
  observer_->transition_ended(step, tag, std::chrono::steady_clock::now() - begin, report);
  return report;
}

}  // namespace lowtide
