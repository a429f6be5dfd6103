// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/socket_directory.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/catch.hpp"

using namespace lowtide;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// The variables that choose the folder are this test's, and are put back.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    path_ = ::mkdtemp(name);
    ::unsetenv("LOWTIDE_RUNTIME_DIR");
    ::unsetenv("XDG_RUNTIME_DIR");
  }
  ~Folder() {
    fs::remove_all(path_);
    ::unsetenv("LOWTIDE_RUNTIME_DIR");
    ::unsetenv("XDG_RUNTIME_DIR");
  }
  std::string operator/(const char* name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

unsigned mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

std::string refusal(const Result<std::string>& result) {
  if (result) return "(no error)";
  CHECK(result.error().code() == Code::refused);
  return result.error().message();
}

}  // namespace

TEST_CASE("a missing folder is made for this user only, whatever the umask") {
  const Folder folder;
  for (const unsigned mask : {0U, 0022U, 0077U, 0177U, 0700U, 0777U}) {
    const auto path = folder / ("mask" + std::to_string(mask)).c_str();
    const auto before = ::umask(mask);
    const auto made = make_directory(path);
    ::umask(before);
    CHECK(made == path);
    CHECK(mode_of(path) == 0700);
  }
  CHECK(make_directory(folder / "run") == folder / "run");
  CHECK(make_directory(folder / "run") == folder / "run");
  CHECK(make_directory((folder / "run") + "//") == folder / "run");
}

TEST_CASE("a folder that is a symbolic link is refused, with and without a slash at its end") {
  const Folder folder;
  fs::create_directory(folder / "real");
  fs::permissions(folder / "real", fs::perms::owner_all);
  fs::create_symlink(folder / "real", folder / "link");
  CHECK(refusal(make_directory(folder / "link")) ==
        "runtime folder " + (folder / "link") + " is a symbolic link: not used");
  CHECK(refusal(make_directory((folder / "link") + '/')).find("is a symbolic link") != std::string::npos);
  CHECK_FALSE(check_directory(folder / "link", Owner::anybody_for_root));
  fs::create_symlink(folder / "absent", folder / "dangling");
  CHECK(refusal(make_directory(folder / "dangling")).find("is a symbolic link") != std::string::npos);
}

TEST_CASE("a mode is given to what is there itself, never to what a link points to") {
  const Folder folder;
  fs::create_directory(folder / "real");
  ::chmod((folder / "real").c_str(), 0755);
  fs::create_symlink(folder / "real", folder / "link");
  CHECK_FALSE(give_mode(folder / "link", 0700));
  CHECK_FALSE(give_mode(folder / "absent", 0700));
  CHECK(mode_of(folder / "real") == 0755);
  if (::geteuid() != 0) return;
  REQUIRE(::chown((folder / "real").c_str(), 12345, 12345) == 0);
  CHECK_FALSE(give_mode(folder / "real", 0700));
  CHECK(mode_of(folder / "real") == 0755);
}

TEST_CASE("a folder that was there before keeps its mode") {
  const Folder folder;
  const auto path = folder / "own";
  ::mkdir(path.c_str(), 0700);
  ::chmod(path.c_str(), 0755);
  CHECK(make_directory(path) == path);
  CHECK(mode_of(path) == 0755);
}

TEST_CASE("a folder that others may write to is refused and left as it is") {
  const Folder folder;
  for (const unsigned mode : {0777U, 0770U, 01777U}) {
    const auto path = folder / "open";
    ::mkdir(path.c_str(), 0700);
    ::chmod(path.c_str(), mode);
    CHECK(refusal(make_directory(path)).find("can be written by others") != std::string::npos);
    CHECK(mode_of(path) == mode);
  }
}

TEST_CASE("a file, a missing parent, a relative path and a read-only file system are refused") {
  const Folder folder;
  std::ofstream(folder / "file") << "x";
  CHECK(refusal(make_directory(folder / "file")).find("is not a folder") != std::string::npos);
  CHECK(refusal(make_directory(folder / "a/b")).find("cannot be made: No such file or directory") != std::string::npos);
  CHECK(refusal(make_directory("run")).find("is not an absolute path") != std::string::npos);
  CHECK(refusal(make_directory("")).find("is not an absolute path") != std::string::npos);
  CHECK(refusal(make_directory("/proc/lowtide")).find("cannot be made") != std::string::npos);
}

TEST_CASE("another user's folder is refused by a server, also one of root, and accepted by a client of root") {
  if (::geteuid() != 0) {
    CHECK(refusal(make_directory("/root")).find("belongs to user 0") != std::string::npos);
    return;
  }
  const Folder folder;
  const auto path = folder / "theirs";
  ::mkdir(path.c_str(), 0700);
  REQUIRE(::chown(path.c_str(), 12345, 12345) == 0);
  CHECK(refusal(make_directory(path)) == "runtime folder " + path + " belongs to user 12345, not to user 0: not used");
  CHECK(check_directory(path, Owner::anybody_for_root) == true);
}

TEST_CASE("a folder whose sockets could not be bound is refused and not made") {
  const Folder folder;
  const auto too_long = folder / std::string(80, 'x').c_str();
  CHECK_THAT(refusal(make_directory(too_long)), Contains("has a path of " + std::to_string(too_long.size())));
  CHECK_FALSE(fs::exists(too_long));
  const auto fits = folder / std::string(80 - (too_long.size() - 81), 'x').c_str();
  const auto made = make_directory(fits);
  REQUIRE(made);
  CHECK(socket_address(*made + '/' + socket_name({4194304, 999'999'999'999})));
}

TEST_CASE("an absent folder is no error for who only looks") {
  const Folder folder;
  CHECK(check_directory(folder / "absent", Owner::this_user) == false);
}

TEST_CASE("the chosen folder is LOWTIDE_RUNTIME_DIR, else that of the login, else the one in /tmp") {
  const Folder folder;
  const auto in_tmp = "/tmp/lowtide-" + std::to_string(::geteuid());
  ::setenv("LOWTIDE_RUNTIME_DIR", (folder / "chosen").c_str(), 1);
  ::setenv("XDG_RUNTIME_DIR", (folder / "").c_str(), 1);
  CHECK(make_socket_directory() == folder / "chosen");
  const auto all = socket_directories();
  REQUIRE(all.size() >= 3);
  CHECK(all[0] == folder / "chosen");
  CHECK(all[1] == folder / "lowtide");
  CHECK(all[2] == in_tmp);
  ::unsetenv("LOWTIDE_RUNTIME_DIR");
  CHECK(make_socket_directory() == folder / "lowtide");
  ::setenv("XDG_RUNTIME_DIR", (folder / "absent").c_str(), 1);
  CHECK(make_socket_directory() == in_tmp);
}

TEST_CASE("a chosen folder that cannot be used is an error and not silently another one") {
  const Folder folder;
  ::setenv("LOWTIDE_RUNTIME_DIR", "/proc/lowtide", 1);
  CHECK(refusal(make_socket_directory()).find("/proc/lowtide cannot be made") != std::string::npos);
}

TEST_CASE("a socket's name says which process it is, and nothing else is a socket's name") {
  const ProcessIdentity process{123, 4567};
  CHECK(socket_name(process) == "123-4567.sock");
  CHECK(parse_socket_name("123-4567.sock") == process);
  for (const char* name :
       {"", ".", "123.sock", "123-.sock", "-1-2.sock", "123-4567", "123-4567.sock~", "0123-4567.sock", "0-1.sock",
        "123-99999999999999999999.sock", "a-b.sock", "123-4567.sock.sock"}) {
    CAPTURE(name);
    CHECK_FALSE(parse_socket_name(name));
  }
}

TEST_CASE("a PID that was recycled, ended or is a corpse is another process") {
  const auto self = identify(::getpid());
  REQUIRE(self);
  CHECK(self->start_time > 0);
  CHECK(identify(::getpid()) == self);
  CHECK(identify_self() == self);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(identify(child));
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(identify(child));
}

TEST_CASE("a process whose first thread has ended is there as long as another runs") {
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);  // of this thread
  }
  const auto stat = "/proc/" + std::to_string(child) + "/stat";
  for (std::string text; text.find(") Z ") == std::string::npos;) std::getline(std::ifstream(stat), text);
  CHECK(identify(child));
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(identify(child));
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("a path that the kernel cannot bind is refused with its length") {
  CHECK(socket_address("/tmp/" + std::string(102, 'x')));
  const auto address = socket_address("/tmp/" + std::string(103, 'x'));
  REQUIRE_FALSE(address);
  CHECK(address.error().code() == Code::config);
  CHECK(std::string(address.error().message()).find("has 108 bytes, the kernel allows 107") != std::string::npos);
}
