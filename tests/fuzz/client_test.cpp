// SPDX-License-Identifier: Apache-2.0
// A process that answers anything: the client gives its last line or says what is wrong, and the command shows it, or
// ends with an error, and shows nothing that a terminal would obey.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <thread>

#include "allocator/control/control_client.hpp"
#include "tests/catch.hpp"
#include "tests/fuzz/fuzzing.hpp"
#include "tools/exit_codes.hpp"
#include "tools/processes/ask.hpp"
#include "tools/view/status_view.hpp"

using namespace fuzz;
using namespace lowtide;
using namespace std::chrono_literals;

namespace {

const std::string status =
    R"({"ok":true,"status":{"pid":7,"command":"python train.py","version":"0.1.0","simulated":false,"default_tag":"weights",)"
    R"("gate":"closed","held_tags":["weights"],"captures":0,"transition":{"step":"pause","done":1,"total":2},)"
    R"("devices":[{"device":0,"name":"H200","backend":"vmm","reason":"","granularity":2097152,"free":1,"total":2}],)"
    R"("tags":[{"tag":"weights","device":0,"action":"offload","state":"parked","blocks":3,"bytes_resident":0,)"
    R"("bytes_parked":5,"bytes_backup":5,"bytes_slack":0,"shared_by":null}],)"
    R"("host":{"bytes_backup":5,"bytes_retained":0},"unmanaged_callers":["libnccl*"],)"
    R"("origins":[{"tag":"lora","from":"rule","rule":1,"blocks":2,"bytes":9,"python":"a.b","function":"f","library":null}],)"
    R"("untagged":[{"allocations":3,"bytes_asked":7,"python":null,"function":null,"library":"libx.so"}],)"
    R"("python_hidden":true}})"
    "\n";
const std::string report =
    R"({"ok":true,"report":{"bytes_parked":3,"bytes_discarded":5,"bytes_kept":7,"blocks":2,"seconds":0.25,)"
    R"("devices":[{"device":1,"free_before":10,"free_after":20}]}})"
    "\n";
const std::string progress = R"({"progress":{"done":1,"total":2,"step":"copy"}})"
                             "\n";
const std::string refusal = R"({"ok":false,"error":{"code":-3,"name":"DEVICE_MEMORY","message":"needs more"}})"
                            "\n";

const Material answers{{status, status, report, progress + report, refusal, "{\"ok\":true}\n", progress + progress, ""},
                       {"\n",
                        "\"",
                        "{",
                        "}",
                        "[",
                        "]",
                        ",",
                        ":",
                        "null",
                        "true",
                        "-1",
                        "1e400",
                        "\"ok\":false",
                        "\\u0000",
                        "\\u001b[2J",
                        "\\ud800",
                        "\x1b[31m",
                        "\xFF",
                        "18446744073709551616",
                        "\"\"",
                        "{}",
                        "\r"}};

/// Serves one client after the other: hears a request, gives the answer, ends the connection.
class Liar {
 public:
  Liar() {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    folder_ = ::mkdtemp(name);
    address_ = socket_address(folder_ + "/s").value();
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    expect(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0, "bind");
    expect(::listen(listener_.get(), 4) == 0, "listen");
    thread_ = std::thread([this] { serve(); });
  }
  ~Liar() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    std::filesystem::remove_all(folder_);
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;

  ControlSocket socket() const { return {*identify(::getpid()), folder_ + "/s"}; }
  /// To the next client; `without_end`: again and again until it has gone.
  void prepare(std::string answer, bool without_end = false) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    without_end_ = without_end;
  }

 private:
  void serve() {
    for (;;) {
      const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      char request[256];
      [[maybe_unused]] const auto heard = ::recv(client.get(), request, sizeof request, 0);
      const std::lock_guard lock(mutex_);
      do {
        if (::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) break;
      } while (without_end_);
    }
  }

  std::string folder_;
  sockaddr_un address_{};
  UniqueFd listener_;
  std::mutex mutex_;
  std::string answer_;
  bool without_end_ = false;
  std::thread thread_;
};

/// The last whole line, unless it is none or progress.
std::optional<std::string> last_line(const std::string& answer) {
  const auto end = answer.rfind('\n');
  if (end == std::string::npos) return std::nullopt;
  const auto before = end == 0 ? std::string::npos : answer.rfind('\n', end - 1);
  auto line =
      answer.substr(before == std::string::npos ? 0 : before + 1, end - (before == std::string::npos ? 0 : before + 1));
  if (line.empty() || line.rfind("{\"progress\":", 0) == 0) return std::nullopt;
  return line;
}

void expect_harmless(const std::string& text) {
  const bool obeyed =
      std::any_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < 0x20 && c != '\n') || c == 0x7F; });
  expect(!obeyed, "a terminal would obey " + shown(text));
}

/// True if it was understood.
template <class Question>
bool ask_and_show(Question&& question) {
  try {
    question();
    return true;
  } catch (const tools::CommandError& error) {
    expect(error.exit_code() != tools::ExitCode::ok && *error.what() != '\0', "an error says what");
  } catch (const nlohmann::json::exception& error) {
    expect(*error.what() != '\0', "the command prints what it is, and fails");
  }
  return false;
}

bool check(Liar& liar, const std::string& answer) {
  liar.prepare(answer);
  auto client = ControlClient::connect(liar.socket(), 10s);
  expect(client.has_value(), "it listens");
  const auto line = client->request(StatusRequest{}, 60s, [](std::string_view) {});
  const auto wanted = last_line(answer);
  expect(line.has_value() == wanted.has_value() && (!line || *line == *wanted), "the client gave another line");
  const bool told = ask_and_show([&] {
    const auto known = tools::ask_status(liar.socket());
    expect_harmless(tools::status_text(known));
    (void)known.raw.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
  const bool moved = ask_and_show([&] {
    const auto made = tools::ask_transition(liar.socket(), PauseRequest{}, [](Bytes, Bytes) {});
    (void)made.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    expect_harmless(tools::report_text(7, "parked", made));
  });
  return told || moved;
}

}  // namespace

TEST_CASE("any answer is a line or an error") {
  int understood = 0;
  for_each_seed([&](Random& random) {
    Liar liar;
    for (int i = 0; i < cases(1'000); ++i) {
      const auto answer = mutated(random, answers);
      try {
        understood += check(liar, answer) ? 1 : 0;
      } catch (const std::exception& error) {
        throw std::runtime_error(shown(answer) + ": " + error.what());
      }
    }
  });
  CHECK(understood > 0);
}

TEST_CASE("an answer without end is broken off") {
  Liar liar;
  liar.prepare(std::string(std::size_t{1} << 20, '{'), true);
  auto client = ControlClient::connect(liar.socket(), 10s);
  REQUIRE(client);
  const auto line = client->request(StatusRequest{}, 60s, {});
  REQUIRE_FALSE(line);
  CHECK(line.error().kind == ClientError::Kind::broken);
}

TEST_CASE("an answer that is nested without end is not of this protocol") {
  Liar liar;
  const std::string deep(1'000'000, '[');
  for (const auto& [start, end] :
       {std::pair(R"({"ok":true,"status":)", ""), std::pair(R"({"ok":true,"report":)", ""),
        std::pair(R"({"progress":)", "}\n{\"ok\":true,\"report\":{}}\n"), std::pair("", "")}) {
    liar.prepare(start + deep + std::string(deep.size(), ']') + (*end == '\0' ? "}\n" : end));
    CHECK_FALSE(ask_and_show([&] { (void)tools::ask_status(liar.socket()); }));
    const bool is_progress = *end != '\0';
    CHECK(ask_and_show([&] { (void)tools::ask_transition(liar.socket(), PauseRequest{}, [](Bytes, Bytes) {}); }) ==
          is_progress);
  }
}
