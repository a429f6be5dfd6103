// SPDX-License-Identifier: Apache-2.0
// Whose device memory is Lowtide's; and lowtide_malloc and lowtide_free, for callers that name a device instead of
// having a current context.
#include <cinttypes>

#include "shim/caller.hpp"
#include "shim/process.hpp"

namespace lowtide {
namespace {

void note_untagged(Origins& origins, CallingThread& caller) noexcept {
  try {
    origins.note_untagged(caller_of(caller), caller.size);
    if (caller.python_is_hidden()) origins.note_hidden_python();
  } catch (const std::bad_alloc&) {  // a note is not worth failing the program's allocation
  }
}

}  // namespace

std::optional<Tagged> Process::tag_for_thread(Runtime& running, Door door, Bytes size) {
  const auto order = allocations_.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto tagged = [&](const Label& label, TagSource source, const RuleMatch& match = {}) {
    return Tagged{label, running.origins().id_of({label.tag, source, match.rule, match.caller})};
  };

  CallingThread caller(size, order, phase());
  // Memory of communication libraries is registered with hardware and peers by its physical pages.
  const auto is_managed = [&] { return door == Door::api || !caller.is_called_by(running.unmanaged_callers()); };
  auto scope = scope_of_thread();
  if (!scope) scope = scope_of_process();
  if (scope && is_managed()) return tagged(*scope, TagSource::scope);
  const auto match = first_match(running.rules(), caller);
  if (caller.python_is_hidden()) running.origins().note_hidden_python();
  if (match) return tagged(running.rules()[match->rule - 1].tag, TagSource::rule, *match);
  if (running.default_tag() && is_managed()) return tagged(*running.default_tag(), TagSource::default_tag);

  note_untagged(running.origins(), caller);
  return std::nullopt;
}

std::optional<Label> Process::scope_of_thread() noexcept {
  const ProcessThread* mine = thread();
  if (mine == nullptr) return std::nullopt;
  if (const Label* scope = mine->scopes.current()) return *scope;
  const auto& flags = mine->flags ? *mine->flags : initial_flags();
  return flags.interesting ? std::optional<Label>(flags.label()) : std::nullopt;
}

std::optional<Label> Process::scope_of_process() noexcept {
  if (!has_process_scope_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(process_scopes_mutex_);
  const Label* scope = process_scopes_.current();
  return scope == nullptr ? std::nullopt : std::optional<Label>(*scope);
}

void Process::set_phase(const TagName& name) {
  watch_forks();
  const std::lock_guard lock(process_scopes_mutex_);
  phase_ = name;
  has_phase_.store(true, std::memory_order_release);
}

std::optional<TagName> Process::phase() noexcept {
  if (!has_phase_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(process_scopes_mutex_);
  return phase_;
}

Status Process::begin_process_scope(const TagName& tag) {
  watch_forks();
  const std::lock_guard lock(process_scopes_mutex_);
  auto status = process_scopes_.begin(tag);
  has_process_scope_.store(process_scopes_.current() != nullptr, std::memory_order_release);
  return status;
}

Status Process::end_process_scope(const TagName& tag) {
  const std::lock_guard lock(process_scopes_mutex_);
  auto status = process_scopes_.end(tag);
  has_process_scope_.store(process_scopes_.current() != nullptr, std::memory_order_release);
  return status;
}

const compat::RegionFlags& Process::initial_flags() noexcept {
  std::call_once(initial_flags_once_, [this] {
    try {
      initial_flags_ = compat::flags_from_environment();
    } catch (const std::bad_alloc&) {  // as if the environment said nothing
    }
  });
  return initial_flags_;
}

bool Process::shows_kept_copies() noexcept {
  const int said = shows_kept_copies_.load(std::memory_order_relaxed);
  return said < 0 ? compat::retains_by_environment() : said != 0;
}

compat::RegionFlags& Process::flags() {
  ProcessThread* mine = thread();
  if (mine == nullptr) throw std::bad_alloc();
  if (!mine->flags) mine->flags = std::make_unique<compat::RegionFlags>(initial_flags());
  return *mine->flags;
}

Result<Backend*> Process::use(Runtime& running, int device, CUcontext context) {
  auto backend = running.attach(DeviceId{device}, id_of(context));
  if (backend) serve();
  return backend;
}

Result<DeviceAddress> Process::place(Runtime& running, Backend& backend, const Tagged& tagged, ContextId context,
                                     Bytes size) {
  const Bytes margin{margin_.load(std::memory_order_relaxed)};
  if (margin.value > 0 && tagged.label.treatment) {
    const auto memory = backend.memory_info();
    if (!memory) return fail(memory.error());
    if (memory->free < margin || memory->free - margin < size) {
      return fail(Error::format(Code::device_memory, "%s would leave less than the margin of %s: %s are free",
                                to_text(size).c_str(), to_text(margin).c_str(), to_text(memory->free).c_str()));
    }
  }
  return running.allocate(backend, tagged.label, context, size, tagged.origin);
}

Result<CUcontext> Process::context_of(int device) {
  CUcontext current = nullptr;
  CUdevice current_device = -1;
  if (driver_.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr &&
      driver_.cuCtxGetDevice(&current_device) == CUDA_SUCCESS && current_device == device) {
    return current;
  }
  const auto lock = lock_start();
  unsigned flags = 0;
  int active = 0;
  const auto known = own_contexts_.find(device);
  // A reset of the device takes the reference away together with the context.
  const bool was_reset = known != own_contexts_.end() &&
                         driver_.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active == 0;
  if (known != own_contexts_.end() && !was_reset) return known->second;
  // Without the doors nobody has told the runtime.
  if (Runtime* running = runtime(); running != nullptr && was_reset) running->drop_primary_context(DeviceId{device});
  CUcontext primary = nullptr;
  auto result = driver_.cuInit(0);
  if (result == CUDA_SUCCESS) result = driver_.cuDevicePrimaryCtxRetain(&primary, device);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuDevicePrimaryCtxRetain"));
  own_contexts_[device] = primary;
  if (Runtime* running = runtime()) {
    running->note_context(DeviceId{device}, id_of(primary), true);
  }
  return primary;
}

Result<void*> Process::allocate(std::size_t bytes, int device) {
  Runtime* running = start();
  if (!has_driver_) return fail(Code::unsupported, "there is no CUDA driver: libcuda.so.1 cannot be used");
  const auto context = context_of(device);
  if (!context) return fail(context.error());
  const cuda::ContextGuard guard(driver_, *context);

  const auto tagged = running == nullptr ? std::nullopt : tag_for_thread(*running, Door::api, Bytes{bytes});
  if (!tagged) {
    CUdeviceptr plain = 0;
    const auto result = driver_.cuMemAlloc_v2(&plain, bytes);
    if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuMemAlloc", to_text(Bytes{bytes}).c_str()));
    return reinterpret_cast<void*>(plain);
  }
  const auto backend = use(*running, device, *context);
  if (!backend) return fail(backend.error());
  const auto address = place(*running, **backend, *tagged, id_of(*context), Bytes{bytes});
  if (!address) return fail(address.error());
  return reinterpret_cast<void*>(address->value);
}

Status Process::free(void* address, int device) {
  if (exiting()) return {};
  if (!has_driver_) return fail(Code::invalid, "no memory was allocated in this process");
  const DeviceAddress start{reinterpret_cast<std::uintptr_t>(address)};
  if (Runtime* running = runtime()) {
    const auto freed = running->free(start);
    if (!freed) return fail(freed.error());
    if (*freed == BlockTable::Freed::done) return {};
  }
  const auto context = context_of(device);
  if (!context) return fail(context.error());
  const cuda::ContextGuard guard(driver_, *context);
  return driver_.status(driver_.cuMemFree_v2(start.value), "cuMemFree");
}

}  // namespace lowtide
