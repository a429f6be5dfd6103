// SPDX-License-Identifier: Apache-2.0
#include "shim/process.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <new>

#include "allocator/base/env.hpp"
#include "allocator/base/log.hpp"
#include "allocator/core/uncancelled.hpp"
#include "shim/backend_choice.hpp"
#include "shim/loader/vendor_library.hpp"

namespace lowtide {
namespace {

// The mutable globals of liblowtide.so.
Immortal<Process> process_storage;
Process& the_process = process_storage.construct();
/// Registers `destroy` for a thread that gets a state.
pthread_key_t thread_key(void (*destroy)(void*)) noexcept {
  static pthread_key_t key = [destroy] {
    pthread_key_t made{};
    pthread_key_create(&made, destroy);
    return made;
  }();
  return key;
}

const RealLoader& the_loader() {
  static const RealLoader loader = find_real_loader();
  return loader;
}

}  // namespace

constinit std::uint32_t recording = 1;
constinit thread_local ProcessThread* this_thread __attribute__((tls_model("initial-exec"))) = nullptr;

Process& process() noexcept { return the_process; }
ApiHost& api_host() noexcept { return the_process; }

void* Process::symbol(const char* name) noexcept {
  const RealLoader& loader = the_loader();
  void* const found = loader.dlsym == nullptr ? nullptr : loader.dlsym(RTLD_DEFAULT, name);
  // The host must not find a message about our look-ups.
  if (found == nullptr && loader.dlerror != nullptr) loader.dlerror();
  return found;
}

ProcessThread* Process::thread() noexcept {
  ProcessThread* thread = this_thread;
  if (thread == nullptr) {
    thread = new (std::nothrow) ProcessThread;
    if (thread == nullptr) return nullptr;
    pthread_setspecific(thread_key(&thread_ended), thread);
    this_thread = thread;
  }
  if (thread->visitor == nullptr) {
    if (Runtime* running = runtime()) thread->visitor = running->gate().add_visitor();
  }
  return thread;
}

void Process::thread_ended(void* state) noexcept {
  auto* thread = static_cast<ProcessThread*>(state);
  this_thread = nullptr;
  if (thread->at_hand != nullptr) *thread->at_hand = nullptr;
  if (thread->visitor != nullptr) Gate::remove_visitor(thread->visitor);
  delete thread;
}

Runtime* Process::start(std::optional<lowtide_vendor> door) noexcept {
  if (state_.load(std::memory_order_acquire) == State::cold) start_once(door);
  return door ? runtime(*door) : runtime();
}

Runtime* Process::runtime(lowtide_vendor door) noexcept {
  Runtime* running = runtime();
  return running != nullptr && platform_->vendor() == door ? running : nullptr;
}

std::unique_lock<std::mutex> Process::lock_start() noexcept {
  watch_forks();
  return std::unique_lock(start_mutex_);
}

void Process::watch_forks() noexcept {
  // Before the first lock: the fork may come while another thread holds it.
  if (!watches_forks_.exchange(true)) pthread_atfork(nullptr, nullptr, [] { in_fork_child(); });
}

void Process::start_once(std::optional<lowtide_vendor> door) noexcept {
  const Uncancelled uncancelled;
  const auto lock = lock_start();
  if (state_.load(std::memory_order_acquire) != State::cold) return;
  Status status;
  try {
    status = load_platform(door);
    if (env_flag("LOWTIDE_DISABLE")) {
      set_recording(false);
      state_.store(State::off, std::memory_order_release);  // as asked for: nothing to say
      return;
    }
    if (status) status = load_runtime();
  } catch (...) {
    status = fail(Code::host_budget, "the host has no memory for it");
  }
  if (!status) {
    log(LogLevel::warning, "switched off in this process: %s", status.error().message());
    set_recording(false);
    state_.store(State::off, std::memory_order_release);
    return;
  }
  // Registered right after the runtime exists, so that they run before anything built earlier is torn down.
  std::atexit([] { at_exit(); });
  state_.store(State::running, std::memory_order_release);
}

Status Process::load_platform(std::optional<lowtide_vendor> door) {
  const RealLoader& loader = the_loader();
  if (loader.dlopen == nullptr || loader.dlsym == nullptr) {
    return fail(Code::unsupported, "the dynamic loader's own functions were not found");
  }
  if (!door) door = first_loaded_vendor();
  Status first;  // the failure of the vendor that was asked for
  for (Platform* platform : std::initializer_list<Platform*>{&cuda_, &hip_}) {
    if (door && platform->vendor() != *door) continue;
    auto status = platform->load(loader);
    // The host must not find a message about our look-ups.
    if (loader.dlerror != nullptr) loader.dlerror();
    if (status) {
      platform_ = platform;
      return {};
    }
    if (first) first = status;
  }
  return door ? first : fail(Code::unsupported, "neither libcuda.so.1 nor libamdhip64.so can be opened");
}

Status Process::load_runtime() {
  settle_configuration();
  if (configuration_error_) return fail(*configuration_error_);
  set_log_level(configuration_->log);
  runtime_ = &runtime_storage_.construct(*configuration_, static_cast<BackendFactory&>(*this), platform_->simulated());
  runtime_->set_relocations(&relocations);
  runtime_->set_device_keys(*this);
  start_observation();
  return {};
}

void Process::start_observation() noexcept {
  observation_ = Observation::start_or_warn(*configuration_, *runtime_, *platform_, &symbol);
  set_recording(observation_ != nullptr);
  if (!observation_) return;
  runtime_->set_observer(*observation_);
  if (const auto name = phase()) observation_->phase_entered(*name, false);
}

void Process::read_configuration() noexcept {
  if (configuration_ || configuration_error_) return;
  try {
    auto loaded = load_configuration(sources_from_environment());
    if (loaded) {
      configuration_ = std::move(*loaded);
      // torch_memory_saver's word for it, where Lowtide's own says nothing.
      const auto folder = env("TMS_DISK_BACKUP_DIR");
      if (folder && configuration_->disk.path.empty()) {
        if (auto status = apply(*configuration_, "disk.path", *folder); !status)
          log(LogLevel::warning, "TMS_DISK_BACKUP_DIR is not used: %s", status.error().message());
      }
    } else {
      configuration_error_ = loaded.error();
    }
  } catch (...) {
    configuration_error_ = Error(Code::host_budget, "the host has no memory for the configuration");
  }
}

void Process::settle_configuration() noexcept {
  read_configuration();
  if (!configuration_ || configuration_error_) return;
  if (const auto status = check_default_tag(*configuration_); !status) configuration_error_ = status.error();
}

const std::optional<Error>& Process::configuration_error() noexcept {
  const auto lock = lock_start();
  settle_configuration();
  return configuration_error_;
}

Status Process::set(std::string_view key, std::string_view value) {
  if (Runtime* running = runtime()) return running->set(key, value);
  const auto lock = lock_start();
  read_configuration();
  if (configuration_error_) return fail(*configuration_error_);
  return apply(*configuration_, key, value);
}

void Process::serve() noexcept {
  // Looked at on every allocation: the flag of call_once is one load once it is set.
  std::call_once(serve_once_, [this] { server_ = ControlServer::start_or_warn(*runtime_); });
}

Result<std::unique_ptr<Backend>> Process::make(DeviceId device, ContextId context) {
  if (const auto known = unusable_.find(device); known != unusable_.end()) return fail(known->second);
  auto backend = choose_backend(platform_->ladder(device), configuration_->backend, context);
  if (backend) return backend;
  if (backend.error().code() == Code::unsupported || backend.error().code() == Code::config) {
    unusable_.emplace(device, backend.error());
    log(LogLevel::warning, "memory of this device is left alone and cannot be paused: %s", backend.error().message());
  }
  return fail(backend.error());
}

void Process::in_fork_child() noexcept {
  // Another thread of the parent may hold any lock: none is taken here.
  new (&the_process.process_scopes_mutex_) std::mutex;  // its holder is not here, and left whole scopes at any moment
  switch (the_process.state_.load()) {
    case State::running:
      the_process.state_.store(State::off);
      set_recording(false);
      the_process.runtime_->abandon_in_child();
      if (the_process.server_) the_process.server_->abandon_in_child();
      break;
    case State::cold:
      if (the_process.start_mutex_.try_lock()) {
        the_process.start_mutex_.unlock();
        return;
      }
      // Another thread of the parent was in the middle of its start, which nobody will finish here: begin anew.
      process_storage.construct();
      set_recording(true);
      the_process.watches_forks_ = true;  // handlers are inherited
      return;
    case State::off:
    case State::exiting: break;
  }
  new (&the_process.start_mutex_) std::mutex;  // its holder is not here
}

void Process::at_exit() noexcept {
  if (the_process.state_.load() != State::running) return;
  the_process.state_.store(State::exiting);
  set_recording(false);
  the_process.runtime_->leave_for_exit();
  if (the_process.observation_) the_process.observation_->leave();
  if (the_process.server_) the_process.server_->unlink_socket();
}

}  // namespace lowtide
