// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "shim/loader/vendor_library.hpp"
#include "shim/preload/hooks.hpp"

namespace {
void* no_dlsym(void*, const char*) { return nullptr; }
void* no_dlvsym(void*, const char*, const char*) { return nullptr; }
void* no_dlopen(const char*, int) { return nullptr; }
}  // namespace

// Written by this file only and read by the assembly as well, which defines lowtide_stubs and the first targets. Before
// libc's functions are found, or in a process without them, a look-up answers NULL.
extern "C" {
extern std::atomic<const void*> lowtide_targets[];
extern void* const lowtide_stubs[];
constinit std::atomic<decltype(lowtide::RealLoader::dlsym)> lowtide_real_dlsym{&no_dlsym};
constinit std::atomic<decltype(lowtide::RealLoader::dlvsym)> lowtide_real_dlvsym{&no_dlvsym};
constinit std::atomic<decltype(lowtide::RealLoader::dlopen)> lowtide_real_dlopen{&no_dlopen};
}

namespace lowtide::preload {
namespace {

struct Entry {
  std::uintptr_t address;
  std::uintptr_t index;
};

/// A vendor's symbols by index.
struct Range {
  std::size_t first, last;
};

constexpr Range range_of(lowtide_vendor vendor) noexcept {
  return vendor == LOWTIDE_CUDA ? Range{0, cuda_symbol_count} : Range{cuda_symbol_count, symbol_count};
}

// A driver may know a function under a second address besides the one dlsym answers.
constexpr std::size_t most_entries = 2 * std::max(cuda_symbol_count, symbol_count - cuda_symbol_count);

/// Entries sorted by address, without duplicates.
struct AddressMap {
  std::array<Entry, most_entries> entries;
  std::size_t count = 0;

  std::size_t place_of(std::uintptr_t address) const noexcept {
    std::size_t place = count;
    while (place > 0 && entries[place - 1].address >= address) --place;
    return place;
  }
  void add(const void* function, std::size_t index) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    const std::size_t place = place_of(address);
    if (place < count && entries[place].address == address) return;
    for (std::size_t i = count; i > place; --i) entries[i] = entries[i - 1];
    entries[place] = {address, index};
    ++count;
  }
};

struct AtomicEntry {
  std::atomic<std::uintptr_t> address;
  std::atomic<std::uintptr_t> index;
};

// The published tables, of each vendor. Threads that meet the driver first at the same time all write, and write the
// same values: nobody waits, and a fork in the middle leaves a child that simply writes them again.
constinit std::atomic<const void*> real_addresses[symbol_count];
struct Published {
  AtomicEntry entries[most_entries];
  std::atomic<std::size_t> count;
  std::atomic<bool> driver_known;
};
constinit Published published[LOWTIDE_VENDORS]{};
constinit std::atomic<char* (*)()> real_dlerror{nullptr};

// What both vendors answer.
CUresult no_such_function() { return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND; }
static_assert(int{CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND} == int{hipErrorSharedObjectSymbolNotFound});

using Addresses = std::array<const void*, symbol_count>;

void* address_by_cuda(const char* proc_name, const Addresses& addresses) noexcept {
  const char* version = nullptr;
  for (const char* at = std::strstr(proc_name, "_v"); at != nullptr; at = std::strstr(at + 1, "_v")) version = at;
  if (version == nullptr) return nullptr;
  char base[64] = {};
  const auto length = static_cast<std::size_t>(version - proc_name);
  if (length >= sizeof base) return nullptr;
  std::memcpy(base, proc_name, length);
  int number = 0;
  const char* suffix = version + 2;
  for (; *suffix >= '0' && *suffix <= '9'; ++suffix) number = number * 10 + (*suffix - '0');
  const cuuint64_t flags =
      *suffix == '_' ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  using Resolver = Vendor<Symbol::cuGetProcAddress_v2>::Function;
  const auto resolve =
      reinterpret_cast<Resolver>(const_cast<void*>(addresses[static_cast<std::size_t>(Symbol::cuGetProcAddress_v2)]));
  CUdriverProcAddressQueryResult status{};
  void* found = nullptr;
  return resolve(base, &found, number, flags, &status) == CUDA_SUCCESS ? found : nullptr;
}

void publish(lowtide_vendor vendor, const Addresses& addresses, const AddressMap& map) noexcept {
  const Range range = range_of(vendor);
  Published& mine = published[vendor];
  for (std::size_t i = range.first; i < range.last; ++i) {
    real_addresses[i].store(addresses[i], std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < map.count; ++i) {
    mine.entries[i].address.store(map.entries[i].address, std::memory_order_relaxed);
    mine.entries[i].index.store(map.entries[i].index, std::memory_order_relaxed);
  }
  mine.count.store(map.count, std::memory_order_relaxed);
  // A target makes its hook run, so it comes after every real address; that the driver is known comes last, since who
  // sees it expects the targets.
  for (std::size_t i = range.first; i < range.last; ++i) {
    const void* hook = hook_address(i) != nullptr ? hook_address(i) : addresses[i];
    if (addresses[i] == nullptr) hook = reinterpret_cast<const void*>(&no_such_function);
    lowtide_targets[i].store(hook, std::memory_order_release);
  }
  mine.driver_known.store(true, std::memory_order_release);
}

// dlsym and cuGetProcAddress name the same addresses on every driver seen, but nobody promises it: where they differ,
// both become ours.
// hipGetProcAddress is dlsym on HIP's own library.
void read_driver(const RealLoader& loader, lowtide_vendor vendor, void* handle) noexcept {
  const Range range = range_of(vendor);
  Addresses addresses{};
  AddressMap map;
  for (std::size_t i = range.first; i < range.last; ++i) {
    addresses[i] = loader.dlsym(handle, symbol_names[i]);
    if (addresses[i] != nullptr) map.add(addresses[i], i);
  }
  if (addresses[static_cast<std::size_t>(Symbol::cuGetProcAddress_v2)] != nullptr) {
    for (std::size_t i = 0; i < cuda_symbol_count; ++i) {
      if (addresses[i] == nullptr) continue;
      const void* second = address_by_cuda(proc_names[i], addresses);
      if (second != nullptr) map.add(second, i);
    }
  }
  publish(vendor, addresses, map);
}

bool find_driver_with(lowtide_vendor vendor, void* (*find)(const RealLoader&, lowtide_vendor)) noexcept {
  if (published[vendor].driver_known.load(std::memory_order_acquire)) return true;
  const RealLoader loader = real_loader();
  void* handle = find(loader, vendor);
  if (handle != nullptr) read_driver(loader, vendor, handle);
  // The host must not find a message about our look-ups.
  if (loader.dlerror != nullptr) loader.dlerror();
  return handle != nullptr;
}

template <typename Function>
void keep(std::atomic<Function>& pointer, Function function) noexcept {
  if (function != nullptr) pointer.store(function, std::memory_order_relaxed);
}

}  // namespace

RealLoader real_loader() noexcept {
  if (real_dlerror.load(std::memory_order_acquire) == nullptr) {
    const RealLoader found = find_real_loader();
    keep(lowtide_real_dlsym, found.dlsym);
    keep(lowtide_real_dlvsym, found.dlvsym);
    keep(lowtide_real_dlopen, found.dlopen);
    real_dlerror.store(found.dlerror, std::memory_order_release);
  }
  return {lowtide_real_dlsym.load(std::memory_order_relaxed), lowtide_real_dlvsym.load(std::memory_order_relaxed),
          lowtide_real_dlopen.load(std::memory_order_relaxed), real_dlerror.load(std::memory_order_relaxed)};
}

bool find_driver(lowtide_vendor vendor) noexcept { return find_driver_with(vendor, &find_vendor_library); }

bool load_driver(lowtide_vendor vendor) noexcept {
  return find_driver(vendor) || find_driver_with(vendor, &open_vendor_library);
}

const void* real_address(std::size_t index) noexcept { return real_addresses[index].load(std::memory_order_relaxed); }

void* export_address(std::size_t index) noexcept { return lowtide_stubs[index]; }

void* substitute(lowtide_vendor vendor, void* address) noexcept {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const Published& mine = published[vendor];
  std::size_t low = 0;
  std::size_t high = mine.driver_known.load(std::memory_order_acquire) ? mine.count.load(std::memory_order_relaxed) : 0;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const std::uintptr_t here = mine.entries[middle].address.load(std::memory_order_relaxed);
    if (here == wanted) return export_address(mine.entries[middle].index.load(std::memory_order_relaxed));
    if (here < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return address;
}

}  // namespace lowtide::preload

/// What an export jumps to before its target is known.
extern "C" const void* lowtide_bind(unsigned index) {
  if (!lowtide::preload::load_driver(lowtide::preload::vendor_of(index)))
    return reinterpret_cast<const void*>(&lowtide::preload::no_such_function);
  return lowtide_targets[index].load(std::memory_order_acquire);
}
