// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <random>

#include "tests/hazards/control.hpp"
#include "tests/kill/world.hpp"

namespace kill_suite {

enum class Verb { pause, resume };
const char* to_text(Verb verb);

/// Who asks the members of a family for a transition: `lowtide VERB LAUNCHER`, or one client for each member.
class Asker {
 public:
  Asker(const Family& family, Verb verb, bool by_command);
  ~Asker();
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  /// Ends the asker in the middle of its question.
  void kill();
  /// Waits for the answers and throws unless those of the survivors are what the documents say. `some_died`: members
  /// were killed meanwhile. True if the survivors are where they were asked to go, false if they were put back.
  bool finish(const Family& survivors, bool some_died);

 private:
  bool finish_command(const Family& survivors, bool some_died);

  std::unique_ptr<hazards::Child> command_;
  std::map<pid_t, std::unique_ptr<hazards::Client>> clients_;
};

/// Two families on one device, of which the members, those who ask them, and those who wait for room are killed at
/// random moments. The same seed makes the same choices; the moments are fractions of the times that were measured.
class Game {
 public:
  Game(const World& world, std::uint64_t seed);

  /// Plays until `kills` processes were killed. Throws std::runtime_error for what should not be.
  void play(int kills);
  /// How many were killed, and in what.
  int kills() const { return static_cast<int>(killed_.size()) + askers_killed_; }
  const std::string& doing() const { return doing_; }

 private:
  struct Round {
    const char* name;
    unsigned weight;
    void (Game::*play)();
  };
  static const std::vector<Round>& rounds();

  void member_while_pausing() { member_while(Verb::pause); }
  void member_while_resuming() { member_while(Verb::resume); }
  void asker_while_pausing() { asker_while(Verb::pause); }
  void asker_while_resuming() { asker_while(Verb::resume); }
  void member_while(Verb verb);
  void asker_while(Verb verb);
  void while_waiting_for_room();

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool toss() { return below(2) == 0; }
  std::unique_ptr<Family> make_family();
  void renew_families();
  Family& pick_family();
  /// Both ways, at rest; learns how long they take.
  void settle(Family& family);
  void move(Family& family, Verb verb, bool by_command);
  void wait_for_a_moment(Verb verb, bool by_command);
  void kill_some(Family& family);
  void kill_filler(hazards::Child& filler);

  void look_around(Family& hit);
  void check_lists();
  void check_bytes();
  void check_device() const;
  void check_state(const Family& family, bool parked) const;
  std::set<pid_t> alive() const;

  const World& world_;
  std::mt19937_64 random_;
  std::array<std::unique_ptr<Family>, 2> families_;
  std::set<pid_t> killed_;
  int askers_killed_ = 0;
  std::array<std::array<std::chrono::microseconds, 2>, 2> usual_{};  ///< by verb and by_command
  std::string doing_ = "starting";
};

/// Throws std::runtime_error(what) unless it holds.
void expect(bool holds, const std::string& what);

}  // namespace kill_suite
