// SPDX-License-Identifier: Apache-2.0
//
// Calls every symbol of the list under the drivers whose functions answer their place in it, and carry a version.
#include <dlfcn.h>

#include <span>

#include "tests/interpose/check.hpp"
#include "tests/interpose/cuda_abi.hpp"

using namespace lowtide::test;

namespace {

constexpr const char* cuda_names[] = {
#define HOOK(name, class, typedef) #name,
#include "shim/hooks.def"
};

constexpr const char* hip_names[] = {
#define HIP(name, class) #name,
#include "shim/hooks.def"
};

// More arguments than any of the functions takes.
using Any = int (*)(long, long, long, long, long, long, long, long, long, long, long, long, long, long);

int call(Any function, long a) { return function(a, a, a, a, a, a, a, a, a, a, a, a, a, a); }

void symbols_reach_their_functions(const char* library, std::span<const char* const> names, int place, long argument) {
  void* driver = ::dlopen(library, RTLD_NOW);
  check(driver != nullptr, "the numbered driver loads");
  for (const char* name : names) {
    const auto function = reinterpret_cast<Any>(::dlsym(driver, name));
    check(function != nullptr && function == reinterpret_cast<Any>(::dlsym(RTLD_DEFAULT, name)), name);
    check(function != nullptr && function == reinterpret_cast<Any>(::dlvsym(driver, name, "NUMBERED_1")), name);
    check(function != nullptr && call(function, argument) == place, name);
    ++place;
  }
}

void every_symbol_reaches_its_function() {
  // Zeros, so that a hook has nothing to look into, and where they are, since aggregates may go by reference.
  static const char zeros[64] = {};
  const auto argument = reinterpret_cast<long>(&zeros);
  symbols_reach_their_functions("libcuda.so.1", cuda_names, 1000, argument);
  symbols_reach_their_functions("libamdhip64.so.6", hip_names, 1000 + static_cast<int>(std::size(cuda_names)),
                                argument);
}

constexpr Scenario scenarios[] = {{"every_symbol_reaches_its_function", every_symbol_reaches_its_function}};

}  // namespace

int main(int argc, char** argv) { return run_scenario(scenarios, argc, argv); }
