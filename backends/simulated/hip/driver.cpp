// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string_view>

#include "allocator/base/log.hpp"

namespace lowtide::sim::hip {
namespace {

/// What a library exports, in the order of its symbol table.
class Exports {
 public:
  /// `library` is a handle of dlopen.
  explicit Exports(void* library) {
    link_map* map = nullptr;
    if (::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return;
    base_ = map->l_addr;
    const std::uint32_t* gnu_hash = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRTAB) strings_ = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const std::uint32_t*>(address);
      if (entry->d_tag == DT_HASH) count_ = reinterpret_cast<const std::uint32_t*>(address)[1];
    }
    if (count_ == 0 && gnu_hash != nullptr) count_ = end_of(gnu_hash);
  }

  void* find(std::string_view name) const {
    for (std::size_t i = 0; i < count_; ++i) {
      const auto& symbol = symbols_[i];
      const bool is_function = symbol.st_shndx != SHN_UNDEF && (symbol.st_info & 0xf) == STT_FUNC;
      if (is_function && name == strings_ + symbol.st_name) return reinterpret_cast<void*>(base_ + symbol.st_value);
    }
    return nullptr;
  }

 private:
  /// The number of symbols, which a table of this kind tells by its last chain only.
  static std::size_t end_of(const std::uint32_t* table) {
    const std::uint32_t bucket_count = table[0];
    const std::uint32_t first = table[1];
    const std::uint32_t* const buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* const chains = buckets + bucket_count;
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < bucket_count; ++i) last = buckets[i] > last ? buckets[i] : last;
    if (last < first) return first;
    while ((chains[last - first] & 1) == 0) ++last;
    return last + 1;
  }

  ElfW(Addr) base_ = 0;
  const char* strings_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace

std::optional<Driver> open_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    log(LogLevel::error, "simulated HIP: %s", ::dlerror());
    return std::nullopt;
  }
  const Exports exports(library);
  Driver driver;
  const char* missing = nullptr;
#define OPTIONAL(name) driver.name = reinterpret_cast<decltype(driver.name)>(exports.find(#name));
#define DRIVER(name) \
  OPTIONAL(name)     \
  if (driver.name == nullptr) missing = #name;
#include "backends/simulated/hip/driver.def"
#undef DRIVER
#undef OPTIONAL
  if (missing == nullptr) return driver;
  log(LogLevel::error, "simulated HIP: this libcuda.so.1 has no %s", missing);
  return std::nullopt;
}

}  // namespace lowtide::sim::hip
