// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/symbols.hpp"

#include <array>
#include <cstring>
#include <string_view>

namespace lowtide::preload {

const char* const symbol_names[symbol_count] = {
#define HOOK(name, class, typedef) #name,
#define HIP(name, class) #name,
#include "shim/hooks.def"
};

const char* const proc_names[cuda_symbol_count] = {
#define HOOK(name, class, typedef) #typedef,
#include "shim/hooks.def"
};

namespace {

constexpr std::string_view spellings[] = {
#define HOOK(name, class, typedef) #name,
#define HIP(name, class) #name,
#include "shim/hooks.def"
};

// The symbols in the order of their names, sorted by the compiler.
constexpr auto by_name = [] {
  std::array<std::uint16_t, symbol_count> order{};
  for (std::size_t i = 0; i < symbol_count; ++i) {
    std::size_t place = i;
    for (; place > 0 && spellings[order[place - 1]] > spellings[i]; --place) order[place] = order[place - 1];
    order[place] = static_cast<std::uint16_t>(i);
  }
  return order;
}();

/// How every name of the list begins; two are C++ names.
bool may_be_listed(const char* name) noexcept {
  return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'h' && name[1] == 'i') || (name[0] == '_' && name[1] == 'Z');
}

}  // namespace

std::size_t find_symbol(const char* name) noexcept {
  if (name == nullptr || !may_be_listed(name)) return symbol_count;
  std::size_t low = 0;
  std::size_t high = symbol_count;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const int order = std::strcmp(symbol_names[by_name[middle]], name);
    if (order == 0) return by_name[middle];
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return symbol_count;
}

}  // namespace lowtide::preload
