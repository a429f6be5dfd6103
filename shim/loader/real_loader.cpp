// SPDX-License-Identifier: Apache-2.0
#include "shim/loader/real_loader.hpp"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifndef __GLIBC__
#error "the doors rely on glibc's dynamic loader"
#endif

namespace lowtide {
namespace {

/// What a look-up needs of a mapped library's dynamic section.
struct DynamicSymbols {
  ElfW(Addr) base = 0;
  const char* soname = nullptr;
  const char* strings = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Half) * versions = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* sysv_hash = nullptr;
};

// glibc relocates these entries in place when it loads a library, except where the section is read-only (the vDSO).
template <typename T>
const T* pointer_of(ElfW(Addr) base, ElfW(Addr) value) noexcept {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

DynamicSymbols read_dynamic(const dl_phdr_info& info) noexcept {
  DynamicSymbols found;
  found.base = info.dlpi_addr;
  const ElfW(Dyn)* entry = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
      entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    }
  }
  ElfW(Xword) soname = 0;
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    const auto value = entry->d_un.d_ptr;
    if (entry->d_tag == DT_SONAME) soname = entry->d_un.d_val;
    if (entry->d_tag == DT_STRTAB) found.strings = pointer_of<char>(found.base, value);
    if (entry->d_tag == DT_SYMTAB) found.symbols = pointer_of<ElfW(Sym)>(found.base, value);
    if (entry->d_tag == DT_VERSYM) found.versions = pointer_of<ElfW(Half)>(found.base, value);
    if (entry->d_tag == DT_GNU_HASH) found.gnu_hash = pointer_of<std::uint32_t>(found.base, value);
    if (entry->d_tag == DT_HASH) found.sysv_hash = pointer_of<std::uint32_t>(found.base, value);
  }
  if (soname != 0 && found.strings != nullptr) found.soname = found.strings + soname;
  return found;
}

// The default version of a defined function: a hidden one (top bit of its version index) is there for old binaries
// only.
bool is_wanted(const DynamicSymbols& library, std::uint32_t index, const char* name) noexcept {
  const ElfW(Sym)& symbol = library.symbols[index];
  constexpr ElfW(Half) hidden = 0x8000;
  if (symbol.st_shndx == SHN_UNDEF || (symbol.st_info & 0xf) != STT_FUNC) return false;
  if (library.versions != nullptr && (library.versions[index] & hidden) != 0) return false;
  return std::strcmp(library.strings + symbol.st_name, name) == 0;
}

std::uint32_t find_by_gnu_hash(const DynamicSymbols& library, const char* name) noexcept {
  std::uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  const std::uint32_t bucket_count = library.gnu_hash[0];
  const std::uint32_t first_symbol = library.gnu_hash[1];
  const std::uint32_t bloom_words = library.gnu_hash[2];
  const std::uint32_t* buckets = library.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* chains = buckets + bucket_count;
  std::uint32_t index = bucket_count == 0 ? 0 : buckets[hash % bucket_count];
  if (index < first_symbol) return 0;
  for (;; ++index) {
    const std::uint32_t chained = chains[index - first_symbol];
    if ((chained | 1U) == (hash | 1U) && is_wanted(library, index, name)) return index;
    if ((chained & 1U) != 0) return 0;
  }
}

std::uint32_t find_by_sysv_hash(const DynamicSymbols& library, const char* name) noexcept {
  std::uint32_t hash = 0;
  for (const char* c = name; *c != '\0'; ++c) {
    hash = (hash << 4) + static_cast<unsigned char>(*c);
    hash = (hash ^ ((hash & 0xf0000000U) >> 24)) & 0x0fffffffU;
  }
  const std::uint32_t bucket_count = library.sysv_hash[0];
  const std::uint32_t* buckets = library.sysv_hash + 2;
  const std::uint32_t* chains = buckets + bucket_count;
  for (auto index = bucket_count == 0 ? 0 : buckets[hash % bucket_count]; index != STN_UNDEF; index = chains[index]) {
    if (is_wanted(library, index, name)) return index;
  }
  return 0;
}

template <typename Function>
void look_up(const DynamicSymbols& library, const char* name, Function& result) noexcept {
  if (result != nullptr) return;
  const std::uint32_t index =
      library.gnu_hash != nullptr ? find_by_gnu_hash(library, name) : find_by_sysv_hash(library, name);
  if (index != 0) result = reinterpret_cast<Function>(library.base + library.symbols[index].st_value);
}

int visit(dl_phdr_info* info, std::size_t, void* result) noexcept {
  const DynamicSymbols library = read_dynamic(*info);
  if (library.soname == nullptr || library.symbols == nullptr) return 0;
  if (library.gnu_hash == nullptr && library.sysv_hash == nullptr) return 0;
  if (std::strcmp(library.soname, "libc.so.6") != 0 && std::strcmp(library.soname, "libdl.so.2") != 0) return 0;
  auto& loader = *static_cast<RealLoader*>(result);
  look_up(library, "dlsym", loader.dlsym);
  look_up(library, "dlvsym", loader.dlvsym);
  look_up(library, "dlopen", loader.dlopen);
  look_up(library, "dlerror", loader.dlerror);
  return 0;
}

}  // namespace

RealLoader find_real_loader() noexcept {
  RealLoader loader{};
  ::dl_iterate_phdr(&visit, &loader);
  return loader;
}

}  // namespace lowtide
