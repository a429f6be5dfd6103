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

Status Process::enter_phase(const TagName& name) {
  watch_forks();
  {
    const std::lock_guard lock(process_scopes_mutex_);
    phase_ = name;
    has_phase_.store(true, std::memory_order_release);
  }
  Runtime* running = runtime();
  return running == nullptr ? Status() : running->enter_phase(name);
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

Result<Backend*> Process::use(Runtime& running, int device, ContextId context) {
  auto backend = running.attach(DeviceId{device}, context);
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
  auto address = running.allocate(backend, tagged.label, context, size, tagged.origin);
  if (observation() != nullptr) {
    if (address)
      observation()->allocated({tagged.label.tag, backend.device(), context, {*address, size}});
    else if (address.error().code() == Code::device_memory)
      observation()->ran_out(tagged.label.tag, backend.device(), size);
  }
  return address;
}

Result<BlockTable::Freed> Process::free_block(Runtime& running, DeviceAddress address) {
  // Told before it happens: its address may be another block's as soon as it has.
  const auto block = observation() == nullptr ? std::nullopt : running.blocks().block_at(address);
  if (block) observation()->freeing(*block);
  auto freed = running.free(address);
  if (block && !freed) observation()->allocated(*block);
  return freed;
}

Result<ContextId> Process::context_of(int device) {
  const auto here = platform_->current();
  if (here && here->device == device) return here->context;
  const auto lock = lock_start();
  return platform_->own_context(device, runtime());
}

Result<DeviceAddress> Process::allocate_plainly(const Runtime* running, ContextId context, Bytes size) {
  auto address = platform_->allocate(context, size);
  if (address && running != nullptr && observation() != nullptr)
    observation()->passed(Observation::record_of(trace::Op::alloc, *address, size));
  return address;
}

Status Process::free_plainly(ContextId context, DeviceAddress address) {
  if (runtime() == nullptr || observation() == nullptr) return platform_->free(context, address);
  auto record = Observation::record_of(trace::Op::free, address, {});
  const bool known = observation()->releasing(record);
  auto status = platform_->free(context, address);
  if (known && !status) observation()->passed(record);
  return status;
}

Result<void*> Process::allocate(std::size_t bytes, int device) {
  Runtime* running = start();
  if (platform_ == nullptr) {
    return fail(Code::unsupported, "there is no GPU driver: neither libcuda.so.1 nor libamdhip64.so can be used");
  }
  const auto context = context_of(device);
  if (!context) return fail(context.error());

  const auto tagged = running == nullptr ? std::nullopt : tag_for_thread(*running, Door::api, Bytes{bytes});
  DeviceAddress address{};
  const auto status = platform_->in_context(*context, [&]() -> Status {
    auto made = tagged ? place_on(*running, device, *context, *tagged, Bytes{bytes})
                       : allocate_plainly(running, *context, Bytes{bytes});
    if (!made) return fail(made.error());
    address = *made;
    return {};
  });
  if (!status) return fail(status.error());
  return reinterpret_cast<void*>(address.value);
}

Result<DeviceAddress> Process::place_on(Runtime& running, int device, ContextId context, const Tagged& tagged,
                                        Bytes size) {
  const auto backend = use(running, device, context);
  if (!backend) return fail(backend.error());
  return place(running, **backend, tagged, context, size);
}

Status Process::free(void* address, int device) {
  if (exiting()) return {};
  if (platform_ == nullptr) return fail(Code::invalid, "no memory was allocated in this process");
  const DeviceAddress start{reinterpret_cast<std::uintptr_t>(address)};
  if (Runtime* running = runtime()) {
    const auto freed = free_block(*running, start);
    if (!freed) return fail(freed.error());
    if (*freed == BlockTable::Freed::done) return {};
  }
  const auto context = context_of(device);
  if (!context) return fail(context.error());
  return free_plainly(*context, start);
}

}  // namespace lowtide
