// SPDX-License-Identifier: Apache-2.0
// A game is some ten kills. LOWTIDE_TEST_SEED=N plays that game alone, LOWTIDE_TEST_LONG=1 ten times as many games.
#include <cstdlib>
#include <stdexcept>

#include "tests/catch.hpp"
#include "tests/kill/game.hpp"

TEST_CASE("processes are killed at random moments of pauses and resumes") {
  constexpr int kills_per_game = 10;
  const char* const chosen = std::getenv("LOWTIDE_TEST_SEED");
  const std::uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const std::uint64_t games = chosen != nullptr ? 1 : std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 100 : 10;
  const kill_suite::World world;
  int kills = 0;
  for (auto seed = first; seed < first + games; ++seed) {
    kill_suite::Game game(world, seed);
    try {
      game.play(kills_per_game);
    } catch (const std::exception& error) {
      FAIL("LOWTIDE_TEST_SEED=" << seed << ", kill " << game.kills() << ", " << game.doing() << ": " << error.what());
    }
    kills += game.kills();
  }
  CHECK(kills >= kills_per_game * static_cast<int>(games));
}
