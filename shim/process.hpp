// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "allocator/base/immortal.hpp"
#include "allocator/control/control_server.hpp"
#include "allocator/lowtide_c.hpp"
#include "shim/compat/host_copies.hpp"
#include "shim/compat/region_flags.hpp"
#include "shim/cuda_platform.hpp"
#include "shim/hip_platform.hpp"
#include "shim/observation/observation.hpp"

namespace lowtide {

/// What a thread has of Lowtide in this process.
struct ProcessThread final : ThreadState {
  std::unique_ptr<compat::RegionFlags> flags;  ///< null until torch_memory_saver's calls say something
};

/// What an allocation gets.
struct Tagged {
  Label label;
  OriginId origin{};
};

/// The composition root: what this process has of Lowtide, and when. Nothing starts before the first GPU call.
///
/// cold -> running | off. A fork child of a cold process is cold; of a running one it is off: it has copies of handles
/// and locks that belong to its parent, and never touches them. From the host's exit handlers on the process is
/// `exiting`: no driver call is made any more. Nothing here is ever destroyed.
class Process final : public ApiHost, private BackendFactory, private DeviceKeys {
 public:
  Process() = default;

  ProcessThread* thread() noexcept override;
  Runtime* runtime() noexcept override {
    return state_.load(std::memory_order_acquire) == State::running ? runtime_ : nullptr;
  }
  Status set(std::string_view key, std::string_view value) override;
  Result<void*> allocate(std::size_t bytes, int device) override;
  Status free(void* address, int device) override;
  Status begin_process_scope(const TagName& tag) override;
  Status end_process_scope(const TagName& tag) override;
  Status enter_phase(const TagName& name) override;

  /// The runtime, started if this is the first GPU call; null if Lowtide keeps out of this process, or serves the other
  /// vendor in it. Who comes without a door gets the vendor whose library the process loaded first, else the one that
  /// can be opened, CUDA before HIP.
  Runtime* start(std::optional<lowtide_vendor> door = {}) noexcept;
  /// The runtime as a vendor's doors see it: null for the doors of the other one.
  Runtime* runtime(lowtide_vendor door) noexcept;
  /// Whether a caller reached us through the driver's own functions, or asked Lowtide by its C API.
  enum class Door { driver, api };
  /// What an allocation of the calling thread gets: its scope's label, else what torch_memory_saver's flags say, else
  /// the process's scope, the first rule that matches, or the default tag. Of these only a rule takes what the callers
  /// of `unmanaged.callers` allocate. Nothing: the driver serves it, and the caller is noted. To be asked once for each
  /// allocation: they are counted. May throw std::bad_alloc.
  std::optional<Tagged> tag_for_thread(Runtime& running, Door door, Bytes size);
  /// The calling thread's flags, to be changed by it. May throw std::bad_alloc.
  compat::RegionFlags& flags();
  /// Those of a thread that has not changed any.
  const compat::RegionFlags& initial_flags() noexcept;
  /// Device memory that stays free when an allocation under the flags is served; what was asked for beyond is refused.
  void set_margin(Bytes margin) noexcept { margin_.store(margin.value, std::memory_order_relaxed); }
  /// Parked bytes that torch_memory_saver's users were pointed at.
  compat::HostCopies& host_copies() noexcept { return host_copies_; }
  /// Whether torch_memory_saver's users asked for the copies that a resume keeps. They are kept in any case, for the
  /// next pause, but without being asked for its Python takes them for a sign that the memory is parked.
  bool shows_kept_copies() noexcept;
  void show_kept_copies(bool show) noexcept { shows_kept_copies_.store(show, std::memory_order_relaxed); }
  /// The backend of a device that blocks are about to be placed on; from now on the process answers on its control
  /// socket.
  Result<Backend*> use(Runtime& running, int device, ContextId context);
  /// A new block, if it leaves the margin.
  Result<DeviceAddress> place(Runtime& running, Backend& backend, const Tagged& tagged, ContextId context, Bytes size);
  /// The vendor; valid once start() returned a runtime.
  Platform& platform() noexcept { return *platform_; }
  const CudaPlatform& cuda() const noexcept { return cuda_; }
  HipPlatform& hip() noexcept { return hip_; }
  /// True from the host's exit handlers on.
  bool exiting() const noexcept { return state_.load(std::memory_order_acquire) == State::exiting; }
  /// True for every address that may be a block's, also after exit began.
  bool was_managed(std::uint64_t address) const noexcept {
    return runtime_ != nullptr && runtime_->blocks().is_managed({address});
  }
  /// What is recorded of the process; null if nothing is. Valid once start() returned a runtime.
  Observation* observation() noexcept { return observation_.get(); }
  /// Frees a block of ours.
  Result<BlockTable::Freed> free_block(Runtime& running, DeviceAddress address);
  /// A device is in use: from now on the process answers on its control socket.
  void serve() noexcept;
  /// True once: a program may try every block in turn.
  bool first_refusal_of_ipc() noexcept { return !refused_ipc_.exchange(true, std::memory_order_relaxed); }
  /// The address of a name in this process by the real loader; null if there is none.
  static void* symbol(const char* name) noexcept;
  /// Why the configuration cannot be used, if so.
  const std::optional<Error>& configuration_error() noexcept;

 private:
  enum class State : int { cold, running, off, exiting };

  Result<std::unique_ptr<Backend>> make(DeviceId device, ContextId context) override;
  std::string key_of(DeviceId device) override { return platform_->key_of(device); }
  void start_once(std::optional<lowtide_vendor> door) noexcept;
  std::optional<Label> scope_of_thread() noexcept;
  std::optional<Label> scope_of_process() noexcept;
  std::optional<TagName> phase() noexcept;
  /// Guards the start, and what is there before it. After a fork in the middle of it, the child has a fresh one.
  std::unique_lock<std::mutex> lock_start() noexcept;
  void watch_forks() noexcept;
  Status load_platform(std::optional<lowtide_vendor> door);
  Status load_runtime();
  void start_observation() noexcept;
  void read_configuration() noexcept;
  /// At the first GPU call: what the program has set until now counts, and its default tag must have an action.
  void settle_configuration() noexcept;
  Result<ContextId> context_of(int device);
  // The vendor's plain memory, past the doors. `context` is current.
  Result<DeviceAddress> allocate_plainly(const Runtime* running, ContextId context, Bytes size);
  Status free_plainly(ContextId context, DeviceAddress address);
  Result<DeviceAddress> place_on(Runtime& running, int device, ContextId context, const Tagged& tagged, Bytes size);

  static void in_fork_child() noexcept;
  static void at_exit() noexcept;
  static void thread_ended(void* state) noexcept;

  std::atomic<State> state_{State::cold};
  std::atomic<bool> watches_forks_{false};
  std::mutex start_mutex_;
  std::optional<Configuration> configuration_;
  std::optional<Error> configuration_error_;
  CudaPlatform cuda_;
  HipPlatform hip_;
  Platform* platform_ = nullptr;  ///< one of the two, once its library is loaded
  Runtime* runtime_ = nullptr;
  Immortal<Runtime> runtime_storage_;
  std::map<DeviceId, Error> unusable_;  ///< devices without a backend; asked under the runtime's device lock
  std::once_flag serve_once_;
  std::once_flag initial_flags_once_;
  compat::RegionFlags initial_flags_;
  std::mutex process_scopes_mutex_;  ///< also the phase's; a fork child has a fresh one
  ScopeStack process_scopes_;
  std::atomic<bool> has_process_scope_{false};
  TagName phase_;
  std::atomic<bool> has_phase_{false};
  std::atomic<std::uint64_t> allocations_{0};
  std::atomic<std::uint64_t> margin_{0};
  compat::HostCopies host_copies_;
  std::atomic<int> shows_kept_copies_{-1};  ///< -1: as the environment says
  std::atomic<bool> refused_ipc_{false};
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<Observation> observation_;
};

/// The calling thread's state, null before its first need. One pointer of static TLS: a library with more may fail to
/// load late. Constant-initialised, so that reading it is one load.
extern constinit thread_local ProcessThread* this_thread __attribute__((tls_model("initial-exec")));

/// Whether somebody wants to know what passes the doors; read by them without a call. Until the process has started,
/// and knows, it is 1.
extern constinit std::uint32_t recording;
inline void set_recording(bool on) noexcept { std::atomic_ref(recording).store(on ? 1 : 0, std::memory_order_relaxed); }

/// The one object of the process.
Process& process() noexcept;

}  // namespace lowtide
