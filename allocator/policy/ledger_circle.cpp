// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/ledger_circle.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "allocator/policy/ledger_table.hpp"

namespace lowtide {
namespace {

struct Link {
  const ledger::Said* who;
  const ledger::WaitRow* for_whom;
};

class Search {
 public:
  Search(std::uint64_t self, std::span<const ledger::Said> all) : self_(self), all_(all) {}

  /// The links from `self` back to `self`; none if there is no such circle.
  std::vector<Link> run() {
    follow(self_);
    return path_;
  }

 private:
  bool follow(std::uint64_t instance) {
    if (!seen_.insert(instance).second) return false;
    const auto now = LedgerTable::now_ms();
    for (const auto& said : all_) {
      if (said.instance != instance || said.wait_until <= now) continue;
      for (std::size_t i = 0; i < said.wait_count; ++i) {
        path_.push_back({&said, &said.waits[i]});
        if (said.waits[i].instance == self_ || follow(said.waits[i].instance)) return true;
        path_.pop_back();
      }
    }
    return false;
  }

  const std::uint64_t self_;
  const std::span<const ledger::Said> all_;
  std::set<std::uint64_t> seen_;
  std::vector<Link> path_;
};

}  // namespace

std::optional<std::string> circle_closed_by(std::uint64_t self, std::span<const ledger::Said> all) {
  const auto links = Search(self, all).run();
  if (links.empty()) return std::nullopt;
  const auto last = std::max_element(
      links.begin(), links.end(), [](const Link& a, const Link& b) { return a.who->wait_ticket < b.who->wait_ticket; });
  if (last->who->instance != self) return std::nullopt;
  std::string text;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const auto& next = *links[(i + 1) % links.size()].who;
    text += (i == 0 ? "process " + std::to_string(links[i].who->pid) : std::string(", which")) + " waits to resume " +
            links[i].who->wants.data() + " until process " + std::to_string(next.pid) + " pauses " +
            links[i].for_whom->tag.data();
  }
  return text;
}

}  // namespace lowtide
