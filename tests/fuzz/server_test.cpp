// SPDX-License-Identifier: Apache-2.0
// Clients that say anything, in pieces, too much, nothing, or go away: each of them is answered or let go, and the next
// good request is answered as ever.
#include <poll.h>

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzzing.hpp"
#include "tests/unit/control_fixture.hpp"

using namespace fuzz;
using namespace lowtide;
using namespace std::chrono_literals;

namespace {

constexpr auto client_timeout = 50ms;

const Material requests{
    {"hello\n", "status\n", "pause\n", "pause tag=weights hold=0 timeout=0.5\n", "pause tag=busy\n", "resume\n",
     "resume tag=lora\n", "trim\n", "set device.wait 20s\n", "set bad x\n"},
    {"\n", " ", "tag=", "hold=", "timeout=", std::string(1, '\0'), "\r\n", "\n\n", "hello", "pause"}};

class Client {
 public:
  Client(const Fixture& fixture, Random& random) : socket_(fixture.connect()) {
    if (random.one_in(12)) return;  // says nothing
    if (random.one_in(15))
      unsent_ = std::string(1 + random.below(200'000), static_cast<char>('a' + random.below(26)));
    else
      unsent_ = mutated(random, requests);
  }

  /// Sends the next piece; false if there is nothing more.
  bool send_piece(Random& random) {
    if (unsent_.empty()) return false;
    const auto size = random.one_in(2) ? unsent_.size() : 1 + random.below(unsent_.size());
    const auto sent = ::send(socket_.get(), unsent_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) said_ = true;
    unsent_.erase(0, sent > 0 ? static_cast<std::size_t>(sent) : unsent_.size());  // refused: the server has closed
    return !unsent_.empty();
  }
  void stop_sending() { ::shutdown(socket_.get(), SHUT_WR); }
  void leave() { socket_.reset(); }

  /// The server ends the connection by itself, after an answer if anything was said.
  void check_answer() const {
    if (!socket_) return;
    std::string answer;
    for (;;) {
      pollfd ready{socket_.get(), POLLIN, 0};
      expect(::poll(&ready, 1, 60'000) == 1, "a client is neither answered nor let go");
      char chunk[4096];
      const auto n = ::recv(socket_.get(), chunk, sizeof chunk, 0);
      if (n <= 0) break;
      answer.append(chunk, static_cast<std::size_t>(n));
    }
    expect(!said_ || !answer.empty(), "a client is let go without an answer");
    if (answer.empty()) return;
    expect(answer.back() == '\n', "an answer without its end: " + shown(answer));
    const auto before_last = answer.rfind('\n', answer.size() - 2);
    const auto last = answer.substr(before_last == std::string::npos ? 0 : before_last + 1);
    const auto parsed = nlohmann::json::parse(last, nullptr, false);
    expect(parsed.is_object() && parsed.contains("ok"), "the answer is " + shown(answer));
  }

 private:
  UniqueFd socket_;
  std::string unsent_;
  bool said_ = false;
};

void expect_served(const Fixture& fixture) {
  // Those who left may still have their places, and on a busy machine this thread may come too late with its request.
  constexpr int attempts = 1000;
  std::string answer;
  for (int i = 0; i < attempts; ++i) {
    answer = fixture.ask("hello\n");
    if (answer == hello_answer(::getpid())) return;
    std::this_thread::sleep_for(5ms);
  }
  expect(false, "a good request is answered: " + shown(answer));
}

void play_session(Fixture& fixture, Random& random) {
  const bool busy = random.one_in(3);
  if (busy) fixture.process.block();
  std::vector<Client> clients;
  for (auto count = 1 + random.below(random.one_in(5) ? 24 : 6); count > 0; --count)
    clients.emplace_back(fixture, random);
  for (bool more = true; more;) {
    more = false;
    for (auto& client : clients) more = client.send_piece(random) || more;
  }
  for (auto& client : clients) {
    if (random.one_in(4)) client.stop_sending();
    if (random.one_in(6)) client.leave();
  }
  fixture.process.release();
  for (const auto& client : clients) client.check_answer();
  expect_served(fixture);
}

}  // namespace

TEST_CASE("a server outlives its clients") {
  for_each_seed([](Random& random) {
    Fixture fixture(client_timeout);
    for (int i = 0; i < cases(40); ++i) play_session(fixture, random);
  });
}
