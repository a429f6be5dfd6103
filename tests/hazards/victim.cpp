// SPDX-License-Identifier: Apache-2.0
#include "tests/hazards/victim.hpp"

#include <cstdio>
#include <exception>

namespace hazards {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

void hear() {
  for (int c = std::getchar(); c != '\n' && c != EOF; c = std::getchar()) continue;
}

}  // namespace hazards

int main(int count, char** values) {
  using namespace hazards;
  const std::string name = count > 1 ? values[1] : "";
  try {
    for (const auto& roles : {exit_roles(), fork_roles(), loading_roles(), api_roles(), trace_roles()}) {
      for (const auto& role : roles) {
        if (name == role.name) return role.play(Arguments(values + 2, values + count));
      }
    }
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", name.c_str(), error.what());
    return 1;
  }
  std::printf("no role %s\n", name.c_str());
  return 2;
}
