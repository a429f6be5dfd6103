// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/control_server.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/catch.hpp"
#include "tests/unit/control_fixture.hpp"

using namespace lowtide;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const std::string status_line = "{\"ok\":true,\"status\":{\"pid\":1}}\n";

std::size_t count_open_files() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{}));
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("hello, status, set, pause, resume and trim are answered by one line each") {
  Fixture fixture;
  CHECK_THAT(fixture.ask("hello\n"), Contains("\"protocol\":1,\"pid\":" + std::to_string(::getpid())));
  CHECK(fixture.ask("status\n") == status_line);
  CHECK(fixture.ask("set device.wait 20s\n") == "{\"ok\":true}\n");
  CHECK(fixture.process.last_value == "20s");
  CHECK_THAT(fixture.ask("set bad 1\n"), Contains("\"name\":\"CONFIG\""));
  CHECK_THAT(fixture.ask("pause tag=weights hold=0 timeout=2\n"), Contains("\"blocks\":1"));
  CHECK_FALSE(fixture.process.last_hold);
  CHECK(fixture.process.last_drain == 2000ms);
  CHECK_THAT(fixture.ask("pause tag=busy\n"), Contains("{\"ok\":false,\"error\":{\"code\":-5,\"name\":\"REFUSED\""));
  CHECK_THAT(fixture.ask("resume\n"), Contains("\"blocks\":2"));
  CHECK_THAT(fixture.ask("trim\n"), Contains("\"trim\":{\"bytes_given_back\":3145728,\"bytes_held\":5242880}"));
}

TEST_CASE("the socket is this user's alone and is gone after stop") {
  Fixture fixture;
  struct stat status {};
  REQUIRE(::stat(fixture.server->path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  fixture.server->stop();
  fixture.server->stop();
  CHECK_FALSE(fs::exists(fixture.server->path()));
}

TEST_CASE("the socket has its mode whatever the umask is") {
  Fixture fixture;
  for (const unsigned mask : {0U, 0777U}) {
    const auto before = ::umask(mask);
    const auto server = ControlServer::start(fixture.process, {fixture.folder, 5000ms});
    ::umask(before);
    REQUIRE(server);
    struct stat status {};
    REQUIRE(::stat((*server)->path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
  }
}

TEST_CASE("the server leaves the standard descriptors alone that its host has closed") {
  const UniqueFd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10));
  ::close(STDIN_FILENO);
  {
    Fixture fixture;
    fixture.process.block();
    CHECK(::fcntl(STDIN_FILENO, F_GETFD) == -1);
    const UniqueFd client(above_standard(fixture.connect().release()));
    Fixture::say(client, "pause\n");
    fixture.process.wait_until_started(1);
    CHECK(::fcntl(STDIN_FILENO, F_GETFD) == -1);
  }
  if (input) ::dup2(input.get(), STDIN_FILENO);
}

TEST_CASE("status answers while a transition runs, and a second transition waits for its turn") {
  Fixture fixture;
  fixture.process.block();
  const auto first = fixture.connect();
  Fixture::say(first, "pause\n");
  fixture.process.wait_until_started(1);
  const auto second = fixture.connect();
  Fixture::say(second, "resume\n");
  CHECK(fixture.ask("status\n") == status_line);
  CHECK(fixture.process.count_started() == 1);
  fixture.process.release();
  CHECK_THAT(Fixture::hear(first), Contains("\"blocks\":1"));
  CHECK_THAT(Fixture::hear(second), Contains("\"blocks\":2"));
}

TEST_CASE("a client that goes away does not stop a transition that has begun, and drops one that has not") {
  Fixture fixture;
  fixture.process.block();
  auto first = fixture.connect();
  Fixture::say(first, "pause\n");
  fixture.process.wait_until_started(1);
  auto second = fixture.connect();
  Fixture::say(second, "pause\n");
  // The status answer shows that the server has read what came before it.
  CHECK(fixture.ask("status\n") == status_line);
  first.reset();
  second.reset();
  fixture.process.release();
  CHECK_THAT(fixture.ask("resume\n"), Contains("\"blocks\":2"));
  CHECK(fixture.process.count_started() == 2);
}

TEST_CASE("a client that goes away calls a hold off for which the process does not come to rest") {
  Fixture fixture;
  fixture.process.never_rests = true;
  auto client = fixture.connect();
  Fixture::say(client, "pause\n");
  fixture.process.wait_until_started(1);
  ::shutdown(client.get(), SHUT_WR);
  CHECK(fixture.ask("status\n") == status_line);
  CHECK(fixture.process.times_called_off == 0);  // only its own sending was ended
  client.reset();
  CHECK_THAT(fixture.ask("resume\n"), Contains("\"blocks\":2"));
  CHECK(fixture.process.times_called_off == 1);
}

TEST_CASE("a client that only ended its own sending still gets its report") {
  Fixture fixture;
  const auto socket = fixture.connect();
  Fixture::say(socket, "pause\n");
  ::shutdown(socket.get(), SHUT_WR);
  CHECK_THAT(Fixture::hear(socket), Contains("\"blocks\":1"));
}

TEST_CASE("garbage, an endless line and half a line get one error line and the end of the connection") {
  Fixture fixture;
  std::string binary(3000, '\0');
  for (std::size_t i = 0; i < binary.size(); ++i) binary[i] = static_cast<char>(i * 7 % 256);
  for (const auto& bytes :
       {std::string("\n"), std::string("what\n"), binary + '\n', std::string(10 << 20, 'x'),
        std::string(10 << 20, '\n'), std::string(4095, 'x') + '\n', std::string(4096, 'x') + '\n'}) {
    const auto answer = fixture.ask(bytes);
    CHECK(lines_in(answer) == 1);
    CHECK_THAT(answer, Contains("{\"ok\":false,\"error\":{\"code\":-1,\"name\":\"INVALID\""));
  }
  const auto half = fixture.connect();
  Fixture::say(half, "pau");
  ::shutdown(half.get(), SHUT_WR);
  CHECK_THAT(Fixture::hear(half), Contains("no newline"));
  CHECK(fixture.process.count_started() == 0);
  CHECK(fixture.ask("status\n") == status_line);
}

TEST_CASE("a silent client and one that stops in the middle are let go in time") {
  Fixture fixture(50ms);
  const auto silent = fixture.connect();
  const auto slow = fixture.connect();
  Fixture::say(slow, "stat");
  CHECK_THAT(Fixture::hear(silent), Contains("no whole request within"));
  CHECK_THAT(Fixture::hear(slow), Contains("no whole request within"));
}

TEST_CASE("more clients than there are places are turned away, and the places come free again") {
  Fixture fixture;
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < ControlServer::most_connections; ++i) silent.push_back(fixture.connect());
  CHECK_THAT(fixture.ask("status\n"), Contains("too many clients"));
  silent.clear();
  // Ended connections are cleared in the order of events, so the first tries may still find the places taken.
  std::string answer;
  while (answer != status_line) answer = fixture.ask("status\n");
  SUCCEED();
}

TEST_CASE("more transitions than can wait are refused as busy and none is lost") {
  Fixture fixture;
  fixture.process.block();
  std::vector<UniqueFd> clients;
  clients.push_back(fixture.connect());
  Fixture::say(clients.back(), "pause\n");
  fixture.process.wait_until_started(1);
  for (std::size_t i = 0; i < TransitionQueue::most_waiting; ++i) {
    clients.push_back(fixture.connect());
    Fixture::say(clients.back(), "pause\n");
    CHECK(fixture.ask("status\n") == status_line);
  }
  CHECK_THAT(fixture.ask("pause\n"), Contains("\"name\":\"BUSY\""));
  fixture.process.release();
  for (const auto& client : clients) CHECK_THAT(Fixture::hear(client), Contains("\"blocks\":1"));
}

TEST_CASE("a client that does not read neither holds up the copy nor gets a broken line") {
  Fixture fixture;
  fixture.process.progress_lines = 2'000'000;
  const auto socket = fixture.connect();
  Fixture::say(socket, "pause\n");
  fixture.process.wait_until_started(1);
  const auto answer = Fixture::hear(socket);
  CHECK(answer.starts_with("{\"progress\":{\"done\":0,\"total\":2000000,\"step\":\"copy\"}}\n"));
  CHECK_THAT(answer, Contains("\"blocks\":1"));
  CHECK(answer.back() == '\n');
  for (std::size_t at = 0; at < answer.size(); at = answer.find('\n', at) + 1) CHECK(answer[at] == '{');
}

TEST_CASE("a peer that is gone when it is answered raises no SIGPIPE") {
  Fixture fixture;
  REQUIRE(::signal(SIGPIPE, SIG_DFL) != SIG_ERR);
  for (int i = 0; i < 50; ++i) Fixture::say(fixture.connect(), i % 2 == 0 ? "status\n" : "pause\n");
  std::string answer;
  while (answer != status_line) answer = fixture.ask("status\n");
  SUCCEED();
}

TEST_CASE("an exception in a transition ends that connection and not the server") {
  Fixture fixture;
  fixture.process.throws = true;
  CHECK(fixture.ask("pause\n").empty());
  fixture.process.throws = false;
  CHECK_THAT(fixture.ask("pause\n"), Contains("\"blocks\":1"));
}

TEST_CASE("stopping lets a running transition end and tells the waiting ones") {
  Fixture fixture;
  fixture.process.block();
  const auto running = fixture.connect();
  Fixture::say(running, "pause\n");
  fixture.process.wait_until_started(1);
  const auto waiting = fixture.connect();
  Fixture::say(waiting, "pause\n");
  CHECK(fixture.ask("status\n") == status_line);
  std::thread stopper([&] { fixture.server->stop(); });
  while (fs::exists(fixture.server->path())) std::this_thread::yield();
  fixture.process.release();
  stopper.join();
  CHECK_THAT(Fixture::hear(running), Contains("\"ok\":true"));
  CHECK(fixture.process.count_started() <= 2);
  const auto late = Fixture::hear(waiting);
  CHECK((late.find("the process is ending") != std::string::npos || late.find("\"ok\":true") != std::string::npos));
}

TEST_CASE("no descriptor is left open by clients or by a server that ended") {
  { Fixture warm_up; }
  const auto before = count_open_files();
  {
    Fixture fixture;
    for (int i = 0; i < 40; ++i) fixture.ask(i % 3 == 0 ? "status\n" : i % 3 == 1 ? "pause\n" : "what\n");
  }
  CHECK(count_open_files() == before);
}

TEST_CASE("a fork child lets go of everything and unlinks nothing") {
  Fixture fixture;
  fixture.process.block();
  const auto running = fixture.connect();
  Fixture::say(running, "pause\n");
  fixture.process.wait_until_started(1);
  const auto before = count_open_files();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    fixture.server->abandon_in_child();
    // Here the listener, the event and the one connection are gone.
    const bool closed = count_open_files() == before - 3;
    fixture.server.reset();
    ::_exit(closed && fs::exists(fixture.folder) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(fs::exists(fixture.server->path()));
  CHECK(fixture.ask("status\n") == status_line);
  fixture.process.release();
  CHECK_THAT(Fixture::hear(running), Contains("\"ok\":true"));
}

TEST_CASE("a child that keeps copies of the descriptors does not keep a client waiting") {
  Fixture fixture;
  fixture.process.block();
  const auto running = fixture.connect();
  Fixture::say(running, "pause\n");
  fixture.process.wait_until_started(1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  fixture.process.release();
  CHECK_THAT(Fixture::hear(running), Contains("\"ok\":true"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("the socket of the same process from before an exec is replaced") {
  Fixture fixture;
  const auto path = fixture.server->path();
  auto second = ControlServer::start(fixture.process, {fixture.folder, 5000ms});
  REQUIRE(second);
  CHECK((*second)->path() == path);
  CHECK(fixture.ask("status\n") == status_line);
}

TEST_CASE("without a usable folder there is no server, one warning, and nothing made") {
  FakeProcess process;
  const auto before = count_open_files();
  const auto server = ControlServer::start(process, {"/proc/lowtide", 5000ms});
  REQUIRE_FALSE(server);
  CHECK_THAT(server.error().message(), Contains("/proc/lowtide cannot be made"));
  ::setenv("LOWTIDE_RUNTIME_DIR", "/proc/lowtide", 1);
  CHECK(ControlServer::start_or_warn(process) == nullptr);
  ::unsetenv("LOWTIDE_RUNTIME_DIR");
  char name[] = "/tmp/lowtide-test-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  const auto deep = folder + '/' + std::string(100, 'd');
  const auto too_long = ControlServer::start(process, {deep, 5000ms});
  REQUIRE_FALSE(too_long);
  CHECK_THAT(too_long.error().message(), Contains("needs one of at most 81"));
  CHECK(count_open_files() == before);
  fs::remove_all(folder);
}

TEST_CASE("another user is told so and gets nothing done") {
  if (::geteuid() != 0) return;
  Fixture fixture;
  ::chmod(fixture.folder.c_str(), 0711);
  ::chmod(fixture.server->path().c_str(), 0666);
  int answer_pipe[2];
  REQUIRE(::pipe(answer_pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    const auto answer = fixture.ask("pause\n");
    [[maybe_unused]] const auto n = ::write(answer_pipe[1], answer.data(), answer.size());
    ::_exit(0);
  }
  ::close(answer_pipe[1]);
  char text[4096] = {};
  [[maybe_unused]] const auto n = ::read(answer_pipe[0], text, sizeof text - 1);
  ::close(answer_pipe[0]);
  ::waitpid(child, nullptr, 0);
  CHECK_THAT(text, Contains("this process belongs to user 0, and you are user 65534"));
  CHECK(fixture.process.count_started() == 0);
}

TEST_CASE("signals of the host never run on the threads of the server") {
  Fixture fixture;
  fixture.ask("pause\n");
  std::size_t blocked = 0;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::ifstream name_file(task.path() / "comm");
    std::string name;
    std::getline(name_file, name);
    if (!name.starts_with("lowtide-")) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto mask = std::stoull(line.substr(7), nullptr, 16);
      for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGPROF, SIGUSR1, SIGCHLD})
        CHECK((mask >> (signal - 1) & 1) == 1);
      ++blocked;
    }
  }
  CHECK(blocked == 2);
}
