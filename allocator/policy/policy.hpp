// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/admission.hpp"
#include "allocator/policy/configuration.hpp"
#include "allocator/policy/ledger.hpp"
#include "allocator/policy/policy_journal.hpp"

namespace lowtide {

/// What the policy has to know of its process and its devices.
class PolicyHost {
 public:
  virtual ~PolicyHost() = default;
  /// What this process holds now, `own` set and each device named by its key.
  virtual Holdings own_holdings() = 0;
  /// "GPU-...", "MIG-..." or "pci-...", the same in all processes that see the device; "" if it has none.
  virtual std::string key_of(DeviceId device) = 0;
  /// What the driver says; nothing at all if it says nothing.
  virtual Bytes free_memory(DeviceId device) = 0;
  /// Its threads wait at the gate before they launch, copy or set memory.
  virtual bool gate_is_closed() = 0;
};

/// The sync policy of this process: rules over what all processes of its devices hold, and room by claims.
///
/// off: everything is admitted and nothing is said to others. observe: everything is admitted, breaches are kept.
/// enforce: a broken order is refused at once. Broken memory rules and missing room are "not now": the transition asks
/// again, and its claim keeps its turn as long as it does. Thread-safe.
class Policy final : public Admission {
 public:
  /// `host` outlives it. `folder`: of the ledger.
  Policy(const Configuration& configuration, PolicyHost& host, std::string folder = ledger_folder());
  ~Policy() override;

  void set_settings(const Configuration& configuration);

  // Admission.
  Result<std::unique_ptr<Admitted>> admit(const TransitionPlan& plan) override;
  void wait(std::chrono::steady_clock::time_point until) override;
  bool waits_for_others() override;
  Status admit(Update step, const TagName& tag, std::uint64_t version) override;
  void given_up() noexcept override;
  std::vector<TagName> bumped_by(TransitionPlan::Step step, const TagName& tag) override;
  std::vector<TagName> bumped_by(Update step, const TagName& tag) override;

  /// The process allocated a block of `tag` on `device`. What it holds is said to others at once if it is the first
  /// there since the last transition, else now and then. Cheap.
  void allocated(const TagName& tag, DeviceId device) noexcept;
  /// The process freed a block: said to others now and then.
  void freed() noexcept;
  /// Content changed by an update.
  void content_changed() noexcept;

  /// The steps of a declared phase that this process has a part in, each with its own tags; nothing if it was not
  /// declared.
  struct OwnStep {
    StepVerb verb;
    TagName tag;
  };
  std::optional<std::vector<OwnStep>> phase_steps(const TagName& name) const;
  void set_phase(const TagName& name);

  /// What the other processes say that they hold of `device`, and how many they are.
  struct Others {
    Bytes bytes;
    std::size_t processes = 0;
  };
  Others others_on(DeviceId device);

  /// What becomes of an operation that breaks a rule.
  PolicyMode mode() const noexcept { return mode_.load(std::memory_order_relaxed); }
  /// What stands in the way of a resume of `tag` now: one line each.
  std::vector<std::string> why(const TagName& tag);
  /// The "policy" object of docs/control-protocol.md.
  std::string status_json();

  /// The process is about to exit: its rows go now, and the last one out removes the ledger.
  void leave() noexcept { ledger_.leave(); }
  void abandon_in_child() noexcept { ledger_.abandon_in_child(); }

 private:
  class Ticket;
  /// A transition that was told "not now", or whose room somebody took who asks nobody: it may ask again from the same
  /// thread, and keeps its turn.
  struct Pending {
    TransitionPlan::Step step{};
    std::optional<TagName> asked;
    std::unique_ptr<Reservation> reservation;
    std::uint64_t ticket = 0;
    std::string device;               ///< where to wait
    std::uint32_t seen = 0;           ///< its last change when it was asked
    std::optional<Waiting> waits_on;  ///< for whom, by rules; said to others once it does wait
  };

  void publish();
  /// Under mutex_, so that an older snapshot never replaces a newer one.
  void publish_alone();
  void publish_now_and_then();
  void take(const Configuration& configuration);
  /// The transition of this thread ended; one that failed may ask again.
  void ended(bool done, std::unique_ptr<Reservation> reservation);
  /// What all processes hold once the own tags of `plan` are where it takes them.
  Holdings projected(const TransitionPlan& plan);
  std::vector<Breach> breaches_of(const TransitionPlan& plan, const Holdings& holdings) const;
  /// Order first, then memory, then room. Under mutex_.
  Status admit_by_rules(const TransitionPlan& plan, const std::vector<Breach>& broken, Pending& pending);
  Status admit_by_room(const TransitionPlan& plan, Pending& pending, const Holdings& holdings);
  Status refuse(const std::string& what, const std::string& why, const std::string& remedy);
  Pending& pending_of(const TransitionPlan& plan, bool& is_new);
  std::vector<TagName> bumped_by(RuleEvent event, const TagName& tag);
  std::vector<RoomNeed> needs_of(const TransitionPlan& plan);

  PolicyHost& host_;
  std::atomic<PolicyMode> mode_;
  mutable std::mutex mutex_;
  Configuration configuration_;  ///< only what the policy looks at
  std::vector<Rule> rules_;
  PolicyJournal journal_;
  std::optional<TagName> phase_;
  Ledger ledger_;
  std::map<std::thread::id, Pending> pending_;  ///< with reservations of the ledger's, and so gone before it

  std::mutex seen_mutex_;
  std::set<std::pair<TagName, DeviceId>> seen_;
  std::atomic<std::uint64_t> said_at_{0};  ///< ms
};

}  // namespace lowtide
