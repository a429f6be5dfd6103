// SPDX-License-Identifier: Apache-2.0
// kill_family SEED...: starts a kill_member for each seed, prints their PIDs on one line, and passes lines on: "I TEXT"
// goes to member I, whose line comes back. "I reap" waits for its end. It uses no GPU, as a launcher does not.
#include <iostream>
#include <memory>
#include <sstream>

#include "tests/hazards/child.hpp"

int main(int count, char** values) {
  std::vector<std::unique_ptr<hazards::Child>> members;
  for (int i = 1; i < count; ++i) {
    members.push_back(
        std::make_unique<hazards::Child>("kill_member", std::vector<std::string>{"work", std::string(values[i])}));
  }
  std::string pids;
  for (const auto& member : members) {
    const auto line = member->line();
    if (line != "ready") std::cerr << "a member says: " << line << '\n';
    pids += std::to_string(member->pid()) + ' ';
  }
  std::cout << pids << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::size_t index = 0;
    std::string text;
    words >> index >> text;
    auto& member = members.at(index);
    if (text == "reap") {
      std::cout << member->end().status << std::endl;
    } else {
      member->say(text);
      std::cout << member->line() << std::endl;
    }
  }
}
