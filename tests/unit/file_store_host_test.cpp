// SPDX-License-Identifier: Apache-2.0
// Backups on disk in a process whose program does what it likes: closes descriptors, sets limits, goes into a sandbox.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstddef>

#include "tests/unit/child_process.hpp"
#include "tests/unit/file_store_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

/// A file of the program under a number that was the store's, as after closefrom(3) and an open.
class HostFile {
 public:
  /// In `folder`, where the file system may give it the inode number that has just become free too.
  HostFile(int number, const std::string& folder) : number_(number) {
    ::close(number);
    std::string name = folder + "/host-XXXXXX";
    const int fd = ::mkostemp(name.data(), O_CLOEXEC);
    REQUIRE(fd >= 0);
    ::unlink(name.c_str());
    if (fd != number) {
      REQUIRE(::dup2(fd, number) == number);
      ::close(fd);
    }
    REQUIRE(::write(number, bytes_.data(), bytes_.size()) == static_cast<ssize_t>(bytes_.size()));
    flags_ = ::fcntl(number, F_GETFL);
  }
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;
  ~HostFile() { ::close(number_); }

  bool is_as_it_was() const {
    std::string now(bytes_.size() + 1, '\0');
    now.resize(static_cast<std::size_t>(std::max<ssize_t>(::pread(number_, now.data(), now.size(), 0), 0)));
    return now == bytes_ && ::fcntl(number_, F_GETFL) == flags_;
  }

 private:
  const int number_;
  int flags_ = 0;
  const std::string bytes_ = std::string(16 << 20, 'P');
};

/// Has the kernel refuse the calls that only help a backup along.
bool enter_sandbox() {
  const auto equals = [](long number) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1);
  };
  const sock_filter refuse BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          equals(__NR_fallocate),
                          refuse,
                          equals(__NR_sync_file_range),
                          refuse,
                          equals(__NR_statx),
                          refuse,
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void limit_files_to(Bytes size) {
  const rlimit limit{size.value, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace

TEST_CASE("a file of the program that has the number of a closed backup's file is not touched, and the loss is said") {
  for (const bool direct : {true, false}) {
    DiskWorld world;
    world.disk->direct = direct;
    KnownContent first(4_MiB);
    KnownContent second(6_MiB);
    const KnownContent before = second;
    SaveRequest requests[] = {request_for(world.device, first), request_for(world.device, second)};
    REQUIRE(world.save(requests));
    const HostFile file(world.disk->fd, world.folder.path);

    std::vector<unsigned char> bytes(6 << 20, 0x5a);
    const auto read = requests[1].backup->read({}, bytes.data(), 6_MiB);
    REQUIRE_FALSE(read);
    CHECK(read.error().code() == Code::corrupt);
    CHECK_THAT(read.error().message(), Contains("the program closed the descriptor") && Contains("10.0 MiB"));
    const auto written = requests[1].backup->write({}, bytes.data(), 6_MiB);
    REQUIRE_FALSE(written);
    CHECK(written.error().code() == Code::corrupt);
    const auto loaded = load(world.device, second, requests[1]);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().code() == Code::corrupt);
    CHECK(second == before);
    CHECK(file.is_as_it_was());
    requests[0].backup.reset();
    CHECK(file.is_as_it_was());
    requests[1].backup.reset();
    CHECK(file.is_as_it_was());
    CHECK(world.store.backup_bytes() == Bytes{});
    CHECK(world.save(requests));
  }
}

TEST_CASE("a program that closes the file of a save which is under way loses nothing") {
  for (const bool direct : {true, false}) {
    DiskWorld world;
    world.disk->direct = direct;
    KnownContent content(60_MiB);
    const KnownContent before = content;
    SaveRequest request = request_for(world.device, content);
    std::optional<HostFile> file;
    const auto status = world.store.save({&request, 1}, [&](const Progress&) {
      if (!file) file.emplace(world.disk->fd, world.folder.path);
    });
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == Code::driver);
    CHECK(status.error().native() == EBADF);
    CHECK_THAT(status.error().message(), Contains("the program closed the descriptor"));
    CHECK(file->is_as_it_was());
    CHECK(request.backup == nullptr);
    REQUIRE(world.save(request));
    content.clear();
    REQUIRE(load(world.device, content, request));
    CHECK(content == before);
  }
}

TEST_CASE("a limit of the file size refuses, and the process is not ended by a signal") {
  const TemporaryFolder folder;
  Child child([&](const Child::Line& line) {
    limit_files_to(8_MiB);
    HostDevice device;
    HostBudget budget;
    FileStore store(budget, {}, {folder.path});
    KnownContent large(9_MiB);
    KnownContent small(8_MiB);
    SaveRequest too_large = request_for(device, large);
    SaveRequest fits = request_for(device, small);
    const auto refused = store.save({&too_large, 1}, {});
    line.say(!refused && refused.error().code() == Code::refused ? 'r' : 'x');
    const std::string message = refused ? "" : refused.error().message();
    const bool says_limit = message.find("RLIMIT_FSIZE") != message.npos && message.find("8.00 MiB") != message.npos &&
                            message.find("9.00 MiB") != message.npos && message.find("free") == message.npos;
    line.say(says_limit ? 'm' : 'x');
    line.say(store.save({&fits, 1}, {}) ? 's' : 'x');
    line.wait();
  });
  CHECK(child.hear() == 'r');
  CHECK(child.hear() == 'm');
  CHECK(child.hear() == 's');
}

TEST_CASE("a limit of the file size that comes after the pause refuses a write, and the bytes are as they were") {
  const TemporaryFolder folder;
  Child child([&](const Child::Line& line) {
    HostDevice device;
    HostBudget budget;
    FileStore store(budget, {}, {folder.path});
    KnownContent content(8_MiB);
    const KnownContent before = content;
    SaveRequest request = request_for(device, content);
    line.say(store.save({&request, 1}, {}) ? 's' : 'x');
    limit_files_to(5_MiB);
    const std::vector<unsigned char> other(8 << 20, 0x5a);
    const auto beyond = request.backup->write(6_MiB, other.data(), 2_MiB);
    line.say(!beyond && beyond.error().code() == Code::refused ? 'r' : 'x');
    const auto across = request.backup->write({}, other.data(), 8_MiB);
    line.say(!across && across.error().code() == Code::refused ? 'r' : 'x');
    content.clear();
    line.say(load(device, content, request) && content == before ? 'l' : 'x');
    line.say(request.backup->write({}, other.data(), 4_MiB) ? 'w' : 'x');
    line.wait();
  });
  for (const char letter : {'s', 'r', 'r', 'l', 'w'}) CHECK(child.hear() == letter);
}

TEST_CASE("a sandbox that refuses the calls which only help does not stand in the way") {
  for (const bool direct : {true, false}) {
    const TemporaryFolder folder;
    Child child([&](const Child::Line& line) {
      auto own_disk = std::make_unique<FaultyDisk>();
      own_disk->direct = direct;
      HostDevice device;
      HostBudget budget;
      FileStore store(budget, {}, {folder.path}, std::move(own_disk));
      KnownContent content(20_MiB);
      const KnownContent before = content;
      SaveRequest early = request_for(device, content);
      SaveRequest late = request_for(device, content);
      line.say(store.save({&early, 1}, {}) ? 's' : 'x');
      line.say(enter_sandbox() ? 'e' : 'n');
      line.say(store.save({&late, 1}, {}) ? 's' : 'x');
      for (auto* request : {&early, &late}) {
        content.clear();
        line.say(load(device, content, *request) && content == before ? 'l' : 'x');
      }
      line.wait();
    });
    REQUIRE(child.hear() == 's');
    if (child.hear() == 'n') {
      WARN("skipped: no sandbox can be made here");
      return;
    }
    for (const char letter : {'s', 'l', 'l'}) CHECK(child.hear() == letter);
  }
}
