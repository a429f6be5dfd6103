// SPDX-License-Identifier: Apache-2.0
// Who is killed, and when.
#include <thread>

#include "tests/kill/game.hpp"

namespace kill_suite {

using std::chrono::microseconds;

const std::vector<Game::Round>& Game::rounds() {
  static const std::vector<Round> all{
      {"a member is killed while its family pauses", 3, &Game::member_while_pausing},
      {"a member is killed while its family resumes", 3, &Game::member_while_resuming},
      {"who asked for a pause is killed", 2, &Game::asker_while_pausing},
      {"who asked for a resume is killed", 2, &Game::asker_while_resuming},
      {"somebody is killed while a family waits for room", 2, &Game::while_waiting_for_room},
  };
  return all;
}

void Game::play(int kills) {
  unsigned weights = 0;
  for (const auto& round : rounds()) weights += round.weight;
  renew_families();
  while (this->kills() < kills) {
    auto pick = below(weights);
    auto round = rounds().begin();
    for (; pick >= round->weight; ++round) pick -= round->weight;
    doing_ = round->name;
    (this->*round->play)();
    renew_families();
  }
}

// From before the first step to after the last.
void Game::wait_for_a_moment(Verb verb, bool by_command) {
  const auto usual = usual_[verb == Verb::pause ? 0 : 1][by_command ? 1 : 0];
  std::this_thread::sleep_for(usual * below(1200) / 1000);
}

void Game::kill_some(Family& family) {
  const bool all = below(7) == 0;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; all && i < family.members().size(); ++i) places.push_back(i);
  if (!all) places.push_back(below(family.members().size()));
  for (const auto place : places) killed_.insert(family.members()[place].pid);
  family.kill(places);
}

void Game::kill_filler(hazards::Child& filler) {
  killed_.insert(filler.pid());
  filler.kill();
  filler.end();
}

void Game::member_while(Verb verb) {
  auto& family = pick_family();
  const bool by_command = toss();
  if (verb == Verb::resume) move(family, Verb::pause, toss());
  Asker asker(family, verb, by_command);
  wait_for_a_moment(verb, by_command);
  kill_some(family);
  const bool moved = asker.finish(family, true);
  check_state(family, moved == (verb == Verb::pause));
  look_around(family);
}

void Game::asker_while(Verb verb) {
  auto& family = pick_family();
  const bool by_command = below(3) != 0;
  if (verb == Verb::resume) move(family, Verb::pause, toss());
  Asker asker(family, verb, by_command);
  wait_for_a_moment(verb, by_command);
  asker.kill();
  ++askers_killed_;
  look_around(family);
}

void Game::while_waiting_for_room() {
  auto& family = pick_family();
  const auto free_before = world_.free_bytes();
  move(family, Verb::pause, toss());
  const auto free = world_.free_bytes();
  expect(free > free_before, "a pause frees device memory");
  hazards::Child filler("kill_member", {"fill", std::to_string(free - below(free - free_before))},
                        world_.under_lowtide(""));
  expect(filler.line() == "ready", "the room is taken");
  const bool by_command = toss();
  Asker asker(family, Verb::resume, by_command);
  wait_for_a_moment(Verb::resume, by_command);
  switch (below(3)) {
    case 0:
      doing_ = "a member is killed that waits for room";
      kill_some(family);
      kill_filler(filler);
      check_state(family, !asker.finish(family, true));
      break;
    case 1:
      doing_ = "who asked is killed while the family waits for room";
      asker.kill();
      ++askers_killed_;
      kill_filler(filler);
      break;
    default:
      doing_ = "who takes the room is killed while a family waits for it";
      kill_filler(filler);
      expect(asker.finish(family, false), "the room came back");
      check_state(family, false);
  }
  look_around(family);
}

}  // namespace kill_suite
