// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>

#include "tests/kill/game.hpp"

namespace kill_suite {
namespace {

constexpr int not_found = 3;  // docs/cli.md

const nlohmann::json* member_in(const nlohmann::json& answer, pid_t process) {
  for (const auto& member : answer.at("processes")) {
    if (member.at("pid").get<pid_t>() == process) return &member;
  }
  return nullptr;
}

}  // namespace

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

const char* to_text(Verb verb) { return verb == Verb::pause ? "pause" : "resume"; }

Asker::Asker(const Family& family, Verb verb, bool by_command) {
  if (by_command) {
    const std::vector<std::string> arguments{to_text(verb), std::to_string(family.launcher()), "--json"};
    command_ = std::make_unique<hazards::Child>(LOWTIDE_TEST_COMMAND, arguments);
    return;
  }
  for (const auto& member : family.members()) {
    clients_[member.pid] = std::make_unique<hazards::Client>(member.pid);
    clients_[member.pid]->send(to_text(verb));
  }
}

Asker::~Asker() = default;

void Asker::kill() {
  if (command_ != nullptr) {
    command_->kill();
    command_->end();
  }
  clients_.clear();
}

bool Asker::finish(const Family& survivors, bool some_died) {
  if (command_ != nullptr) return finish_command(survivors, some_died);
  for (const auto& member : survivors.members()) {
    const auto answer = clients_.at(member.pid)->answer();
    expect(hazards::is_ok(answer), "process " + std::to_string(member.pid) + " answers: " + answer);
  }
  return true;
}

bool Asker::finish_command(const Family& survivors, bool some_died) {
  const auto outcome = outcome_of(*command_);
  const auto said = "exit code " + std::to_string(outcome.exit_code) + ": " + outcome.answer.dump() + outcome.errors;
  const bool done = outcome.exit_code == 0;
  expect(done || (some_died && outcome.exit_code == not_found), "the command's " + said);
  if (!outcome.answer.contains("processes")) return done;  // nobody was asked
  for (const auto& survivor : survivors.members()) {
    const auto* member = member_in(outcome.answer, survivor.pid);
    expect(member != nullptr && member->contains("report"), "a survivor is missing in " + said);
    expect(done || member->contains("undone"), "a survivor was not put back: " + said);
  }
  return done;
}

}  // namespace kill_suite
