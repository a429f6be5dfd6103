// SPDX-License-Identifier: Apache-2.0
#include "allocator/lowtide_c.hpp"

#include <algorithm>
#include <cstring>

#include "allocator/core/uncancelled.hpp"
#include "allocator/include/lowtide/lowtide.h"

namespace lowtide {
namespace {

static_assert(static_cast<int>(Code::invalid) == LOWTIDE_ERROR_INVALID);
static_assert(static_cast<int>(Code::config) == LOWTIDE_ERROR_CONFIG);
static_assert(static_cast<int>(Code::device_memory) == LOWTIDE_ERROR_DEVICE_MEMORY);
static_assert(static_cast<int>(Code::host_budget) == LOWTIDE_ERROR_HOST_BUDGET);
static_assert(static_cast<int>(Code::refused) == LOWTIDE_ERROR_REFUSED);
static_assert(static_cast<int>(Code::moved) == LOWTIDE_ERROR_MOVED);
static_assert(static_cast<int>(Code::driver) == LOWTIDE_ERROR_DRIVER);
static_assert(static_cast<int>(Code::unsupported) == LOWTIDE_ERROR_UNSUPPORTED);
static_assert(static_cast<int>(Code::corrupt) == LOWTIDE_ERROR_CORRUPT);
static_assert(static_cast<int>(Code::busy) == LOWTIDE_ERROR_BUSY);

static_assert(static_cast<int>(Freshness::valid) == LOWTIDE_VALID);
static_assert(static_cast<int>(Freshness::stale) == LOWTIDE_STALE);
static_assert(static_cast<int>(Freshness::syncing) == LOWTIDE_SYNCING);

lowtide_result answer(const Status& status) noexcept {
  if (status) return LOWTIDE_OK;
  remember_error(status.error().message());
  return static_cast<lowtide_result>(status.error().code());
}

/// Runs the body of an entry point; no exception leaves it.
template <class Body>
lowtide_result entry(Body body) noexcept {
  const Uncancelled uncancelled;
  try {
    return answer(body());
  } catch (const std::bad_alloc&) {
    return answer(fail(Code::host_budget, "the host has no memory for the call's own bookkeeping; nothing changed"));
  } catch (...) {
    return answer(fail(Code::driver, "an unexpected exception was stopped at the C API"));
  }
}

Result<std::optional<TagName>> parse_tag(const char* text, bool may_be_all) {
  if (text == nullptr && may_be_all) return std::nullopt;
  const auto tag = TagName::parse(text == nullptr ? "" : text);
  if (!tag) {
    return fail(Error::format(Code::invalid, "\"%.80s\" is no tag: 1 to 63 of A-Z a-z 0-9 _ -", text ? text : ""));
  }
  return tag;
}

/// Callers compiled against an older header have a shorter struct: what it has no room for is left out.
template <class Struct>
Status fill_struct(Struct* to, Struct from) {
  if (to->struct_size < sizeof(std::size_t) || to->struct_size > 1 << 20) {
    return fail(Error::format(Code::invalid, "struct_size is %zu: set it to sizeof before the call", to->struct_size));
  }
  const auto size = std::min(to->struct_size, sizeof(Struct));
  from.struct_size = to->struct_size;
  std::memcpy(to, &from, size);
  return {};
}

lowtide_report to_c(const TransitionReport& report) {
  lowtide_report c{};
  c.bytes_parked = report.parked.value;
  c.bytes_discarded = report.discarded.value;
  c.bytes_kept = report.kept.value;
  c.blocks = report.blocks;
  c.seconds = report.time.count();
  for (const auto& device : report.devices) {
    if (c.device_count == LOWTIDE_MAX_DEVICES) break;
    c.devices[c.device_count++] = {index_of(device.device), device.free_before.value, device.free_after.value};
  }
  return c;
}

/// Pause or resume. Where Lowtide does not run there is nothing to do, and that is what the report says.
template <class Transition>
lowtide_result transition(const char* tag_text, lowtide_report* report, Transition run) noexcept {
  return entry([&]() -> Status {
    if (report != nullptr) {
      if (auto status = fill_struct(report, lowtide_report{}); !status) return status;
    }
    const auto tag = parse_tag(tag_text, true);
    if (!tag) return fail(tag.error());
    Runtime* runtime = api_host().runtime();
    if (runtime == nullptr) return {};
    const auto done = run(*runtime, *tag);
    if (!done) return fail(done.error());
    return report == nullptr ? Status{} : fill_struct(report, to_c(*done));
  });
}

AddressRange range_of(const void* address, std::size_t bytes) {
  return {{reinterpret_cast<std::uintptr_t>(address)}, {bytes}};
}

/// `host` is where a caller says that `bytes` bytes lie or go.
Status check_host(const char* function, const void* host, std::size_t bytes) {
  if (host != nullptr || bytes == 0) return {};
  return fail(Error::format(Code::invalid, "%s: NULL is no place for %zu bytes", function, bytes));
}

Status no_runtime() { return fail(Code::invalid, "Lowtide manages no memory in this process"); }

Status tag_info(const TagName& tag, int device, lowtide_tag_info& info) {
  constexpr int all_devices = -1;
  if (device < all_devices) {
    return fail(Error::format(Code::invalid, "%d is no device: 0 or more, or -1 for all of them", device));
  }
  bool found = false;
  info.addresses_are_stable = 1;
  Runtime* runtime = api_host().runtime();
  for (const auto& region : runtime == nullptr ? std::vector<RegionInfo>{} : runtime->blocks().regions()) {
    if (region.label.tag != tag || (device != all_devices && index_of(region.device) != device)) continue;
    found = true;
    info.blocks += region.blocks;
    info.bytes_resident += region.resident.value;
    info.bytes_parked += region.parked.value;
    info.bytes_backup += region.backup.value;
    info.bytes_slack += region.slack.value;
    if (!region.stable_address) info.addresses_are_stable = 0;
    info.freshness = std::max(info.freshness, static_cast<lowtide_freshness>(region.freshness));
    info.bytes_stale += region.stale.value;
    info.bytes_residue += region.residue.value;
  }
  if (const auto updates = runtime == nullptr ? std::nullopt : runtime->blocks().updates(tag)) {
    info.version = updates->version;
    info.updates = updates->committed;
    info.repeated_calls = updates->repeated;
  }
  if (found) return {};
  const std::string where = device < 0 ? "any device" : "device " + std::to_string(device);
  return fail(Error::format(Code::invalid, "no block carries the tag %s on %s", tag.c_str(), where.c_str()));
}

/// A call about the updates of a tag.
template <class Call>
lowtide_result update(const char* tag_text, Call call) noexcept {
  return entry([&]() -> Status {
    const auto tag = parse_tag(tag_text, false);
    if (!tag) return fail(tag.error());
    Runtime* runtime = api_host().runtime();
    return runtime == nullptr ? no_runtime() : call(*runtime, **tag);
  });
}

}  // namespace

void remember_error(const char* message) noexcept {
  if (ThreadState* thread = api_host().thread()) {
    const auto length = std::min(std::strlen(message), thread->last_error.size() - 1);
    std::copy_n(message, length, thread->last_error.begin());
    thread->last_error[length] = '\0';
  }
}
}  // namespace lowtide

using namespace lowtide;

const char* lowtide_last_error(void) {
  const ThreadState* thread = api_host().thread();
  return thread == nullptr ? "the host has no memory for a message" : thread->last_error.data();
}

lowtide_result lowtide_scope_begin(const char* tag) {
  return entry([&]() -> Status {
    const auto parsed = parse_tag(tag, false);
    if (!parsed) return fail(parsed.error());
    ThreadState* thread = api_host().thread();
    if (thread == nullptr) throw std::bad_alloc();
    return thread->scopes.begin(**parsed);
  });
}

lowtide_result lowtide_scope_end(void) {
  return entry([]() -> Status {
    ThreadState* thread = api_host().thread();
    if (thread == nullptr) throw std::bad_alloc();
    return thread->scopes.end();
  });
}

lowtide_result lowtide_process_scope_begin(const char* tag) {
  return entry([&]() -> Status {
    const auto parsed = parse_tag(tag, false);
    return parsed ? api_host().begin_process_scope(**parsed) : fail(parsed.error());
  });
}

lowtide_result lowtide_process_scope_end(const char* tag) {
  return entry([&]() -> Status {
    const auto parsed = parse_tag(tag, false);
    return parsed ? api_host().end_process_scope(**parsed) : fail(parsed.error());
  });
}

lowtide_result lowtide_set(const char* key, const char* value) {
  return entry([&]() -> Status {
    if (key == nullptr || value == nullptr) return fail(Code::invalid, "lowtide_set needs a key and a value");
    return api_host().set(key, value);
  });
}

lowtide_result lowtide_phase(const char* name) {
  return entry([&]() -> Status {
    const auto parsed = TagName::parse(name == nullptr ? "" : name);
    if (!parsed) {
      return fail(Error::format(Code::invalid, "\"%.80s\" is no name of a phase: 1 to 63 of A-Z a-z 0-9 _ -",
                                name == nullptr ? "" : name));
    }
    return api_host().enter_phase(*parsed);
  });
}

lowtide_result lowtide_pause(const char* tag, lowtide_report* report) {
  return transition(tag, report, [](Runtime& runtime, const auto& t) { return runtime.pause(t); });
}

lowtide_result lowtide_resume(const char* tag, lowtide_report* report) {
  return transition(tag, report, [](Runtime& runtime, const auto& t) { return runtime.resume(t); });
}

lowtide_result lowtide_begin_update(const char* tag, uint64_t version) {
  return update(tag, [&](Runtime& runtime, const TagName& t) { return runtime.begin_update(t, version); });
}

lowtide_result lowtide_commit_update(const char* tag, uint64_t version) {
  return update(tag, [&](Runtime& runtime, const TagName& t) { return runtime.commit_update(t, version); });
}

lowtide_result lowtide_abort_update(const char* tag) {
  return update(tag, [](Runtime& runtime, const TagName& t) { return runtime.abort_update(t); });
}

lowtide_result lowtide_mark_valid(const char* tag, uint64_t version) {
  return update(tag, [&](Runtime& runtime, const TagName& t) { return runtime.mark_valid(t, version); });
}

lowtide_result lowtide_drop_backup(const char* tag) {
  return update(tag, [](Runtime& runtime, const TagName& t) { return runtime.drop_backup(t); });
}

lowtide_result lowtide_on_relocate(const char* tag, lowtide_relocate_callback callback, void* user) {
  return entry([&]() -> Status {
    const auto parsed = parse_tag(tag, false);
    if (!parsed) return fail(parsed.error());
    api_host().relocations.follow(**parsed, {callback, user});
    return {};
  });
}

lowtide_result lowtide_trim(uint64_t* bytes) {
  return entry([&]() -> Status {
    Runtime* runtime = api_host().runtime();
    const auto report = runtime == nullptr ? TrimReport{} : runtime->trim();
    if (!report) return fail(report.error());
    if (bytes != nullptr) *bytes = report->given_back.value;
    return {};
  });
}

lowtide_result lowtide_get_tag_info(const char* tag, int device, lowtide_tag_info* info) {
  return entry([&]() -> Status {
    const auto parsed = parse_tag(tag, false);
    if (!parsed) return fail(parsed.error());
    if (info == nullptr) return fail(Code::invalid, "lowtide_get_tag_info needs a struct to fill");
    lowtide_tag_info found{};
    if (auto status = tag_info(**parsed, device, found); !status) return status;
    return fill_struct(info, found);
  });
}

lowtide_result lowtide_read_paused(const void* device_ptr, void* host, size_t bytes) {
  return entry([&]() -> Status {
    if (auto status = check_host("lowtide_read_paused", host, bytes); !status) return status;
    Runtime* runtime = api_host().runtime();
    return runtime == nullptr ? no_runtime() : runtime->read_backup(range_of(device_ptr, bytes), host);
  });
}

lowtide_result lowtide_write_paused(void* device_ptr, const void* host, size_t bytes) {
  return entry([&]() -> Status {
    if (auto status = check_host("lowtide_write_paused", host, bytes); !status) return status;
    Runtime* runtime = api_host().runtime();
    return runtime == nullptr ? no_runtime() : runtime->write_backup(range_of(device_ptr, bytes), host);
  });
}

lowtide_result lowtide_view_paused(const void* device_ptr, const void** host, size_t* bytes) {
  return entry([&]() -> Status {
    if (host == nullptr || bytes == nullptr) return fail(Code::invalid, "lowtide_view_paused needs two places to fill");
    Runtime* runtime = api_host().runtime();
    if (runtime == nullptr) return no_runtime();
    const auto view = runtime->view_backup(range_of(device_ptr, 1).start);
    if (!view) return fail(view.error());
    *host = view->data();
    *bytes = view->size();
    return {};
  });
}

void* lowtide_malloc(ssize_t size, int device, void* /*stream*/) {
  void* memory = nullptr;
  entry([&]() -> Status {
    if (size <= 0) return fail(Error::format(Code::invalid, "lowtide_malloc of %zd bytes", size));
    auto allocated = api_host().allocate(static_cast<std::size_t>(size), device);
    if (!allocated) return fail(allocated.error());
    memory = *allocated;
    return {};
  });
  return memory;
}

void lowtide_free(void* ptr, ssize_t /*size*/, int device, void* /*stream*/) {
  if (ptr == nullptr) return;
  entry([&] { return api_host().free(ptr, device); });
}
