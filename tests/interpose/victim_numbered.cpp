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

// More arguments than any of the functions takes; all of them zero, so that a hook has nothing to look into.
using Any = int (*)(long, long, long, long, long, long, long, long, long, long, long, long);

void symbols_reach_their_functions(const char* library, std::span<const char* const> names, int place) {
  void* driver = ::dlopen(library, RTLD_NOW);
  check(driver != nullptr, "the numbered driver loads");
  for (const char* name : names) {
    const auto function = reinterpret_cast<Any>(::dlsym(driver, name));
    check(function != nullptr && function == reinterpret_cast<Any>(::dlsym(RTLD_DEFAULT, name)), name);
    check(function != nullptr && function == reinterpret_cast<Any>(::dlvsym(driver, name, "NUMBERED_1")), name);
    check(function != nullptr && function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == place, name);
    ++place;
  }
}

void every_symbol_reaches_its_function() {
  symbols_reach_their_functions("libcuda.so.1", cuda_names, 1000);
  symbols_reach_their_functions("libamdhip64.so.6", hip_names, 1000 + static_cast<int>(std::size(cuda_names)));
}

constexpr Scenario scenarios[] = {{"every_symbol_reaches_its_function", every_symbol_reaches_its_function}};

}  // namespace

int main(int argc, char** argv) { return run_scenario(scenarios, argc, argv); }
