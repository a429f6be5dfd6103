// SPDX-License-Identifier: Apache-2.0
// LOWTIDE_TEST_SEED=N plays that seed alone, LOWTIDE_TEST_LONG=1 ten times as many steps.
#include <cstdlib>

#include "tests/catch.hpp"
#include "tests/model/random_operations.hpp"
#include "tests/sanitized.hpp"

using namespace lowtide::test;

namespace {

constexpr int usual_steps = sanitized ? 500 : 2'000;

}  // namespace

TEST_CASE("random operations leave the core in the state of the model") {
  const char* const chosen = std::getenv("LOWTIDE_TEST_SEED");
  const int steps = std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 10 * usual_steps : usual_steps;
  const std::uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const std::uint64_t last = chosen != nullptr ? first : 3;
  for (const BackendKind* kind : backend_kinds) {
    INFO(kind->name);
    for (auto seed = first; seed <= last; ++seed) {
      RandomOperations operations(seed, *kind);
      REQUIRE_NOTHROW(operations.run(steps));
      REQUIRE_NOTHROW(operations.finish());
    }
  }
}
