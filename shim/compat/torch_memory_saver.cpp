// SPDX-License-Identifier: Apache-2.0
#include "shim/compat/torch_memory_saver.h"

#include <string>

#include "allocator/base/log.hpp"
#include "allocator/core/uncancelled.hpp"
#include "shim/process.hpp"

using namespace lowtide;

namespace {

/// torch_memory_saver's users wait for whoever has the memory: with its own library a resume would end the process.
constexpr std::chrono::milliseconds usual_wait{20'000};

/// Runs the body of an entry point; no exception leaves it.
template <class Body, class Answer>
Answer entry(Answer otherwise, Body body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (...) {
    log(LogLevel::error, "the host has no memory for a call of torch_memory_saver");
  }
  return otherwise;
}

template <class Body>
void change_flags(Body body) noexcept {
  entry(false, [&] {
    body(process().flags());
    return true;
  });
}

/// The calling thread's flags, which a question does not make.
const compat::RegionFlags& flags() noexcept {
  const ProcessThread* mine = this_thread;
  return mine != nullptr && mine->flags ? *mine->flags : process().initial_flags();
}

void set(const char* key, const std::string& value) {
  if (auto status = process().set(key, value); !status) log(LogLevel::error, "%s", status.error().message());
}

std::optional<TagName> tag_or_all(const char* tag) {
  return tag == nullptr || *tag == '\0' ? std::nullopt : std::optional(compat::tag_for(tag));
}

/// Whose copies torch_memory_saver's users are pointed at.
Runtime::Copies shown_copies() noexcept {
  return process().shows_kept_copies() ? Runtime::Copies::kept : Runtime::Copies::parked;
}

template <class Transition>
int transition(const char* what, const char* tag, Transition run) noexcept {
  return entry(static_cast<int>(Code::host_budget), [&] {
    Runtime* runtime = process().runtime();
    const auto wanted = tag_or_all(tag);
    if (runtime == nullptr || (wanted && !runtime->blocks().knows(*wanted))) return 0;
    const auto report = run(*runtime, wanted);
    process().host_copies().drop_gone(*runtime, shown_copies());
    if (report) return 0;
    remember_error(report.error().message());
    log(LogLevel::error, "%s of %s failed: %s", what, wanted ? wanted->c_str() : "all tags", report.error().message());
    return static_cast<int>(report.error().code());
  });
}

}  // namespace

void* tms_torch_malloc(ssize_t size, int device, void* /*stream*/) {
  return entry(static_cast<void*>(nullptr), [&]() -> void* {
    if (size <= 0) return nullptr;
    auto memory = process().allocate(static_cast<std::size_t>(size), device);
    if (memory) return *memory;
    log(LogLevel::info, "tms_torch_malloc: %s", memory.error().message());
    return nullptr;
  });
}

void tms_torch_free(void* address, ssize_t /*size*/, int device, void* /*stream*/) {
  if (address == nullptr) return;
  entry(false, [&] {
    auto status = process().free(address, device);
    if (!status) log(LogLevel::warning, "tms_torch_free: %s", status.error().message());
    return true;
  });
}

void tms_set_interesting_region(bool interesting) {
  change_flags([&](auto& flags) { flags.interesting = interesting; });
}
bool tms_get_interesting_region(void) { return flags().interesting; }

void tms_set_current_tag(const char* tag) {
  if (tag == nullptr) return;
  change_flags([&](auto& flags) { flags.set_name(tag); });
}
const char* tms_get_current_tag(void) { return flags().name.c_str(); }

void tms_set_enable_cpu_backup(bool enable) {
  change_flags([&](auto& flags) { flags.cpu_backup = enable; });
}
bool tms_get_enable_cpu_backup(void) { return flags().cpu_backup; }

void tms_set_cpu_backup_backend(const char* backend) {
  const std::string_view word = backend == nullptr ? "" : backend;
  if (word != "" && word != "pinned" && word != "mmap") {
    log(LogLevel::warning, "\"%.40s\" is no place for a backup: pinned or mmap; it stays as it was", backend);
    return;
  }
  change_flags([&](auto& flags) { flags.mmap = word == "mmap"; });
}
const char* tms_get_cpu_backup_backend(void) { return flags().mmap ? "mmap" : "pinned"; }

void tms_set_enable_disk_backup(bool enable) {
  change_flags([&](auto& flags) { flags.disk_backup = enable; });
}
bool tms_get_enable_disk_backup(void) { return flags().disk_backup; }

void tms_set_disk_backup_dir(const char* folder) {
  if (folder == nullptr) return;
  entry(false, [&] {
    set("disk.path", folder);
    return true;
  });
}

void set_memory_margin_bytes(uint64_t bytes) { process().set_margin(Bytes{bytes}); }

void tms_set_retain_cpu_backup(bool retain) {
  entry(false, [&] {
    set("host.retain", retain ? "auto" : "none");
    process().show_kept_copies(retain);
    return true;
  });
}
bool tms_get_retain_cpu_backup(void) { return process().shows_kept_copies(); }

int tms_pause(const char* tag) {
  return transition("a pause", tag, [](Runtime& runtime, const auto& wanted) { return runtime.pause(wanted); });
}

int tms_resume(const char* tag) {
  return transition("a resume", tag,
                    [](Runtime& runtime, const auto& wanted) { return runtime.resume_or_refuse(wanted, usual_wait); });
}

uint8_t* tms_get_cpu_backup_pointer(const uint8_t* address, uint64_t size) {
  return entry(static_cast<uint8_t*>(nullptr), [&]() -> uint8_t* {
    Runtime* runtime = process().runtime();
    if (runtime == nullptr || address == nullptr || size == 0) return nullptr;
    const AddressRange range{{reinterpret_cast<std::uintptr_t>(address)}, Bytes{size}};
    const auto* bytes = process().host_copies().at(*runtime, range, shown_copies());
    return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(bytes));
  });
}
