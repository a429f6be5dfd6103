// SPDX-License-Identifier: Apache-2.0
#include "tests/hazards/control.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/hazards/program.hpp"

namespace hazards {
namespace {

/// Field 22 of /proc/PID/stat; the command's name before it may hold spaces.
std::string start_time_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  return field;
}

struct Directory {
  std::string path = "/tmp/lowtide-hazards-XXXXXX";
  pid_t owner = ::getpid();
  Directory() {
    if (const char* inherited = std::getenv("LOWTIDE_RUNTIME_DIR")) {
      path = inherited;
      owner = 0;
      return;
    }
    must(::mkdtemp(path.data()) != nullptr, "mkdtemp");
    ::setenv("LOWTIDE_RUNTIME_DIR", path.c_str(), 1);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    if (owner == ::getpid()) std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

const std::string& runtime_directory() {
  static const Directory directory;
  return directory.path;
}

std::string socket_of(pid_t process) {
  return runtime_directory() + "/" + std::to_string(process) + "-" + start_time_of(process) + ".sock";
}

Client::Client(pid_t process) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = socket_of(process);
  must(path.size() < sizeof address.sun_path, "the socket's path is short enough");
  std::memcpy(address.sun_path, path.data(), path.size());
  must(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "the socket is served");
}

Client::~Client() { ::close(socket_); }

void Client::send(const std::string& request) const {
  const auto line = request + "\n";
  must(::send(socket_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size()), "send");
}

std::string Client::answer() const {
  std::string text;
  char chunk[4096];
  for (ssize_t n = 0; (n = ::recv(socket_, chunk, sizeof chunk, 0)) > 0;) text.append(chunk, static_cast<size_t>(n));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto last = text.rfind('\n');
  text = last == std::string::npos ? text : text.substr(last + 1);
  return says(text, "\"ok\":") ? text : "";
}

std::string ask(pid_t process, const std::string& request) {
  const Client client(process);
  client.send(request);
  return client.answer();
}

bool is_ok(const std::string& answer) { return says(answer, "\"ok\":true"); }
bool says(const std::string& answer, const std::string& part) { return answer.find(part) != std::string::npos; }

long long number_in(const std::string& answer, const std::string& name) {
  const auto key = "\"" + name + "\":";
  const auto at = answer.find(key);
  return at == std::string::npos ? -1 : std::strtoll(answer.c_str() + at + key.size(), nullptr, 10);
}

}  // namespace hazards
