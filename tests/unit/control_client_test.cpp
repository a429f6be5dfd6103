// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/control_client.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/catch.hpp"

using namespace lowtide;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    path = ::mkdtemp(name);
    ::setenv("LOWTIDE_RUNTIME_DIR", path.c_str(), 1);
  }
  ~Folder() {
    fs::remove_all(path);
    ::unsetenv("LOWTIDE_RUNTIME_DIR");
  }
  std::string path;
};

UniqueFd listen_at(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = socket_address(path);
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0);
  REQUIRE(::listen(socket.get(), 4) == 0);
  return socket;
}

// A server that says `answer` to the first client.
class OneAnswer {
 public:
  OneAnswer(const std::string& path, std::string answer)
      : listener_(listen_at(path)), thread_([this, answer] {
          const UniqueFd client(::accept(listener_.get(), nullptr, nullptr));
          char request[256];
          [[maybe_unused]] const auto n = ::recv(client.get(), request, sizeof request, 0);
          ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        }) {}
  ~OneAnswer() { thread_.join(); }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

ProcessIdentity self() { return *identify(::getpid()); }

bool lists(const std::vector<ControlSocket>& sockets, const std::string& path) {
  return std::any_of(sockets.begin(), sockets.end(), [&](const auto& socket) { return socket.path == path; });
}

}  // namespace

TEST_CASE("the socket of a running process is listed, and other files are left alone") {
  const Folder folder;
  const auto path = folder.path + '/' + socket_name(self());
  const auto listener = listen_at(path);
  std::ofstream(folder.path + "/note.txt") << "x";
  const auto listing = list_sockets();
  CHECK(lists(listing.live, path));
  CHECK(fs::exists(folder.path + "/note.txt"));
}

TEST_CASE("a socket that its process left at an exec is not that of the program it runs now") {
  const Folder folder;
  const auto path = folder.path + '/' + socket_name(self());
  listen_at(path).reset();
  CHECK_FALSE(lists(list_sockets().live, path));
  CHECK(fs::exists(path));

  // A process that has Lowtide and does not serve its socket has to be heard of.
  const auto library = folder.path + "/liblowtide.so";
  std::ofstream(library) << "x";
  const UniqueFd file(::open(library.c_str(), O_RDONLY | O_CLOEXEC));
  void* const mapped = ::mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, file.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK(lists(list_sockets().live, path));
  ::munmap(mapped, 1);
}

TEST_CASE("root does not take a socket in another user's folder for that of a process of a third") {
  if (::geteuid() != 0) return;
  const Folder folder;
  const auto path = folder.path + '/' + socket_name(self());
  const auto listener = listen_at(path);
  REQUIRE(::chown(folder.path.c_str(), 65534, 65534) == 0);
  const auto listing = list_sockets();
  CHECK_FALSE(lists(listing.live, path));
  CHECK_FALSE(lists(listing.stale, path));
  CHECK(fs::exists(path));
}

TEST_CASE("what an ended process left, or one whose PID was recycled, is removed") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  auto recycled = self();
  recycled.start_time += 1;
  for (const auto& process : {ProcessIdentity{child, 1}, recycled}) {
    const auto path = folder.path + '/' + socket_name(process);
    listen_at(path).reset();
    const auto listing = list_sockets();
    CHECK(lists(listing.stale, path));
    CHECK_FALSE(lists(listing.live, path));
    CHECK_FALSE(fs::exists(path));
  }
}

TEST_CASE("a socket that somebody serves is kept though its process cannot be seen") {
  const Folder folder;
  auto elsewhere = self();
  elsewhere.start_time += 1;
  const auto path = folder.path + '/' + socket_name(elsewhere);
  const auto listener = listen_at(path);
  const auto listing = list_sockets();
  CHECK_FALSE(lists(listing.stale, path));
  CHECK(fs::exists(path));
}

TEST_CASE("a folder that cannot be trusted is reported and nothing in it is touched") {
  const Folder folder;
  auto gone = self();
  gone.start_time += 1;
  const auto path = folder.path + '/' + socket_name(gone);
  listen_at(path).reset();
  ::chmod(folder.path.c_str(), 0777);
  const auto listing = list_sockets();
  REQUIRE_FALSE(listing.problems.empty());
  CHECK(std::string(listing.problems[0].message()).find("can be written by others") != std::string::npos);
  CHECK(fs::exists(path));
}

TEST_CASE("progress lines come as they are, and the last line is the answer") {
  const Folder folder;
  const ControlSocket socket{self(), folder.path + "/s"};
  const OneAnswer server(socket.path, "{\"progress\":{\"done\":1}}\n{\"progress\":{\"done\":2}}\n{\"ok\":true}\n");
  auto client = ControlClient::connect(socket, 1000ms);
  REQUIRE(client);
  std::vector<std::string> lines;
  const auto answer = client->request(StatusRequest{}, 30s, [&](std::string_view line) { lines.emplace_back(line); });
  CHECK(answer == "{\"ok\":true}");
  CHECK(lines == std::vector<std::string>{"{\"progress\":{\"done\":1}}", "{\"progress\":{\"done\":2}}"});
}

TEST_CASE("a process that ends without an answer, or in the middle of one, is gone") {
  const Folder folder;
  int number = 0;
  for (const char* answer : {"", "{\"ok\":tr", "{\"progress\":{\"done\":1}}\n"}) {
    const ControlSocket socket{self(), folder.path + "/s" + std::to_string(number++)};
    const OneAnswer server(socket.path, answer);
    auto client = ControlClient::connect(socket, 1000ms);
    REQUIRE(client);
    const auto result = client->request(PauseRequest{}, std::nullopt, {});
    REQUIRE_FALSE(result);
    CHECK(result.error().kind == ClientError::Kind::gone);
  }
}

TEST_CASE("a process that does not answer is silent, and one that does not listen is gone") {
  const Folder folder;
  const ControlSocket socket{self(), folder.path + "/s"};
  {
    const auto listener = listen_at(socket.path);
    auto client = ControlClient::connect(socket, 1000ms);
    REQUIRE(client);
    const auto result = client->request(StatusRequest{}, 20ms, {});
    REQUIRE_FALSE(result);
    CHECK(result.error().kind == ClientError::Kind::silent);
  }
  CHECK(ControlClient::connect(socket, 1000ms).error().kind == ClientError::Kind::gone);
  CHECK(ControlClient::connect({self(), folder.path + "/absent"}, 1000ms).error().kind == ClientError::Kind::gone);
}

TEST_CASE("a request that is called off ends the connection, and one that was answered before is not called off") {
  const Folder folder;
  const auto path = folder.path + "/" + socket_name(self());
  const auto listener = listen_at(path);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd call_off(ends[0]);
  const UniqueFd caller(ends[1]);
  REQUIRE(::write(caller.get(), "x", 1) == 1);
  auto client = ControlClient::connect({self(), path}, 1000ms);
  REQUIRE(client);
  const auto answer = client->request(PauseRequest{}, std::nullopt, {}, call_off.get());
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == ClientError::Kind::called_off);
  const UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  char request[64];
  CHECK(::recv(server.get(), request, sizeof request, 0) == 6);
  CHECK(::recv(server.get(), request, sizeof request, 0) == 0);

  auto answered = ControlClient::connect({self(), path}, 1000ms);
  REQUIRE(answered);
  const UniqueFd second(::accept(listener.get(), nullptr, nullptr));
  REQUIRE(::send(second.get(), "{}\n", 3, MSG_NOSIGNAL) == 3);
  ::shutdown(second.get(), SHUT_RDWR);
  CHECK(answered->request(PauseRequest{}, std::nullopt, {}, call_off.get()) == "{}");
}

TEST_CASE("a server that refused and went before we spoke is still heard, without a SIGPIPE") {
  const Folder folder;
  const ControlSocket socket{self(), folder.path + "/s"};
  const auto listener = listen_at(socket.path);
  auto client = ControlClient::connect(socket, 1000ms);
  REQUIRE(client);
  const std::string refusal = "{\"ok\":false}\n";
  {
    const UniqueFd accepted(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(::send(accepted.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL) > 0);
  }
  CHECK(client->request(StatusRequest{}, 30s, {}) == "{\"ok\":false}");
}
