// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstring>

namespace lowtide::test {

inline int failures = 0;

/// Says what does not hold, and where; the program goes on, and fails at its end.
inline void check(bool holds, const char* what, int line = __builtin_LINE()) {
  if (holds) return;
  ++failures;
  std::printf("line %d: does not hold: %s\n", line, what);
}

struct Scenario {
  const char* name;
  void (*run)();
};

/// Runs the scenario that the first argument names.
template <std::size_t count>
int run_scenario(const Scenario (&scenarios)[count], int argc, char** argv) {
  for (const Scenario& scenario : scenarios) {
    if (argc > 1 && std::strcmp(scenario.name, argv[1]) == 0) {
      scenario.run();
      return failures == 0 ? 0 : 1;
    }
  }
  std::printf("no scenario %s\n", argc > 1 ? argv[1] : "named");
  return 2;
}

}  // namespace lowtide::test
