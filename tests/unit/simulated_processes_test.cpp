// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "tests/unit/simulated_gpu.hpp"

// The process of these tests never calls the driver itself: each case plays with fresh processes.

namespace {

/// A folder of its own for the processes of a case.
class Directory {
 public:
  Directory() {
    char name[] = "/tmp/lowtide-sim-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
    ::setenv("LOWTIDE_SIM_DIR", name, 1);
    ::setenv("LOWTIDE_SIM_MEMORY", "128M", 1);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    for (const auto& file : files()) ::unlink((path_ + "/" + file).c_str());
    ::rmdir(path_.c_str());
    ::unsetenv("LOWTIDE_SIM_DIR");
    ::unsetenv("LOWTIDE_SIM_MEMORY");
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    DIR* const entries = ::opendir(path_.c_str());
    while (const dirent* entry = ::readdir(entries)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    ::closedir(entries);
    return names;
  }
  std::size_t shares() const { return files().size() - 1; }  // without the file `lock`

 private:
  std::string path_;
};

/// A process that runs `body(pipe to the test)` and ends with its result.
class Process {
 public:
  explicit Process(const std::function<int(int)>& body) {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::close(ends_[0]);
      ::_exit(body(ends_[1]));
    }
    ::close(ends_[1]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) kill();
    ::close(ends_[0]);
  }
  int wait() {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    wait();
  }
  void hear() {
    char byte = 0;
    REQUIRE(::read(ends_[0], &byte, 1) == 1);
  }
  void tell() { REQUIRE(::write(ends_[0], "x", 1) == 1); }

 private:
  pid_t pid_ = -1;
  int ends_[2] = {-1, -1};
};

void tell_test(int pipe) { [[maybe_unused]] const auto written = ::write(pipe, "x", 1); }
void hear_test(int pipe) {
  char byte = 0;
  [[maybe_unused]] const auto got = ::read(pipe, &byte, 1);
}

bool start() {
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
         cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

CUresult take(std::size_t size) {
  CUmemGenericAllocationHandle handle = 0;
  const auto properties = device_memory();
  return cuMemCreate(&handle, size, &properties, 0);
}

std::size_t free_now() {
  std::size_t free = 0;
  std::size_t total = 0;
  cuMemGetInfo(&free, &total);
  return free;
}

/// Takes `size`, says so, and stays until it is told to go.
int hold(std::size_t size, int pipe) {
  if (!start() || take(size) != CUDA_SUCCESS) return 1;
  tell_test(pipe);
  hear_test(pipe);
  return 0;
}

}  // namespace

TEST_CASE("processes share the device's memory, and SIGKILL returns a share") {
  const Directory directory;
  Process other([](int pipe) { return hold(100 * MiB, pipe); });
  other.hear();
  Process mine([](int pipe) {
    if (!start() || free_now() != 28 * MiB) return 1;
    if (take(64 * MiB) != CUDA_ERROR_OUT_OF_MEMORY) return 2;
    if (free_now() != 28 * MiB) return 3;
    tell_test(pipe);
    hear_test(pipe);
    if (free_now() != 128 * MiB) return 4;
    return take(128 * MiB) == CUDA_SUCCESS ? 0 : 5;
  });
  mine.hear();
  other.kill();
  mine.tell();
  CHECK(mine.wait() == 0);
}

TEST_CASE("a forked child that outlives a killed process does not keep its share") {
  const Directory directory;
  pid_t survivor = -1;
  int channel[2];
  REQUIRE(::pipe(channel) == 0);
  Process other([&](int pipe) {
    if (!start() || take(100 * MiB) != CUDA_SUCCESS) return 1;
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    [[maybe_unused]] const auto written = ::write(channel[1], &child, sizeof child);
    tell_test(pipe);
    hear_test(pipe);
    return 0;
  });
  other.hear();
  REQUIRE(::read(channel[0], &survivor, sizeof survivor) == static_cast<ssize_t>(sizeof survivor));
  other.kill();
  Process mine([](int) { return start() && free_now() == 128 * MiB ? 0 : 1; });
  CHECK(mine.wait() == 0);
  ::kill(survivor, SIGKILL);
  ::close(channel[0]);
  ::close(channel[1]);
}

TEST_CASE("two processes that ask for the last bytes at once do not both get them") {
  const Directory directory;
  for (int round = 0; round < 20; ++round) {
    const auto race = [](int pipe) {
      if (!start()) return 2;
      tell_test(pipe);
      hear_test(pipe);
      const int got = take(80 * MiB) == CUDA_SUCCESS ? 1 : 0;
      tell_test(pipe);
      hear_test(pipe);
      return got;
    };
    Process a(race);
    Process b(race);
    a.hear(), b.hear();
    a.tell(), b.tell();
    a.hear(), b.hear();
    a.tell(), b.tell();
    CHECK(a.wait() + b.wait() == 1);
  }
}

TEST_CASE("files of dead processes go away, and a process that ends takes its own along") {
  const Directory directory;
  {
    Process killed([](int pipe) { return hold(10 * MiB, pipe); });
    killed.hear();
    killed.kill();
  }
  CHECK(directory.shares() == 1);
  Process next([](int pipe) {
    if (!start()) return 1;
    free_now();
    tell_test(pipe);
    hear_test(pipe);
    std::exit(0);
  });
  next.hear();
  CHECK(directory.shares() == 1);
  next.tell();
  CHECK(next.wait() == 0);
  CHECK(directory.shares() == 0);
}

TEST_CASE("without a folder a device belongs to one process") {
  ::setenv("LOWTIDE_SIM_MEMORY", "128M", 1);
  Process other([](int pipe) { return hold(100 * MiB, pipe); });
  other.hear();
  Process mine([](int) { return start() && free_now() == 128 * MiB ? 0 : 1; });
  CHECK(mine.wait() == 0);
  ::unsetenv("LOWTIDE_SIM_MEMORY");
}

TEST_CASE("fork after the driver was initialised leaves the child without it, and without a deadlock") {
  Process parent([](int) {
    if (!start()) return 1;
    // Another thread inside the driver at the moment of the fork.
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      while (!stop) take(2 * MiB);
    });
    int failures = 0;
    for (int i = 0; i < 20; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(20);
        CUdeviceptr block = 0;
        int count = 0;
        const bool refused = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                             cuMemAlloc(&block, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                             cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED;
        ::_exit(refused ? 0 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      failures += status != 0;
    }
    stop = true;
    busy.join();
    return failures == 0 && cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 2;
  });
  CHECK(parent.wait() == 0);
}

TEST_CASE("a forked child does not see the device's memory") {
  Process parent([](int) {
    if (!start()) return 1;
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, MiB) != CUDA_SUCCESS) return 2;
    const pid_t child = ::fork();
    if (child == 0) {
      int ends[2];
      const bool made = ::pipe(ends) == 0;
      ::_exit(made && ::write(ends[1], reinterpret_cast<void*>(block), 1) < 0 && errno == EFAULT ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0 ? 0 : 3;
  });
  CHECK(parent.wait() == 0);
}

TEST_CASE("calls before cuInit and without a context are refused") {
  Process process([](int) {
    CUdeviceptr block = 0;
    int count = 0;
    if (cuMemAlloc(&block, 1) != CUDA_ERROR_NOT_INITIALIZED) return 1;
    if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED) return 2;
    if (cuInit(0) != CUDA_SUCCESS) return 3;
    if (cuMemAlloc(&block, 1) != CUDA_ERROR_INVALID_CONTEXT) return 4;
    if (cuCtxSynchronize() != CUDA_ERROR_INVALID_CONTEXT) return 5;
    return cuCtxPopCurrent(nullptr) == CUDA_ERROR_INVALID_CONTEXT ? 0 : 6;
  });
  CHECK(process.wait() == 0);
}

TEST_CASE("the driver answers that it is shutting down once exit began") {
  Process process([](int) {
    std::atexit([] {
      CUdeviceptr block = 0;
      ::_exit(cuMemAlloc(&block, 1) == CUDA_ERROR_DEINITIALIZED ? 0 : 1);
    });
    if (!start()) return 2;
    std::exit(3);
  });
  CHECK(process.wait() == 0);
}

TEST_CASE("a bad environment makes cuInit fail with one line on stderr that names the variable") {
  const auto* variable = GENERATE("LOWTIDE_SIM_PERSONA", "LOWTIDE_SIM_MEMORY", "LOWTIDE_SIM_DEVICES",
                                  "LOWTIDE_SIM_FAIL", "LOWTIDE_SIM_DIR");
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::setenv(variable, "/no/such/thing", 1);
  Process process([&](int) {
    ::dup2(ends[1], STDERR_FILENO);
    return cuInit(0) == CUDA_SUCCESS ? 1 : 0;
  });
  ::unsetenv(variable);
  ::close(ends[1]);
  CHECK(process.wait() == 0);
  char text[1024] = {};
  const auto length = ::read(ends[0], text, sizeof text - 1);
  ::close(ends[0]);
  REQUIRE(length > 0);
  const std::string line(text);
  CHECK(line.find(variable) != std::string::npos);
  CHECK(line.find('\n') == line.size() - 1);
}

TEST_CASE("memory exported to another process holds the same bytes there") {
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  Process exporter([&](int pipe) {
    if (!start()) return 1;
    const auto properties = device_memory();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    const bool made = cuMemCreate(&handle, 2 * MiB, &properties, 0) == CUDA_SUCCESS &&
                      cuMemAddressReserve(&address, 2 * MiB, 0, 0, 0) == CUDA_SUCCESS &&
                      cuMemMap(address, 2 * MiB, 0, handle, 0) == CUDA_SUCCESS &&
                      allow(address, 2 * MiB) == CUDA_SUCCESS && cuMemsetD8(address, 33, 2 * MiB) == CUDA_SUCCESS;
    int file = -1;
    if (!made ||
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS) {
      return 2;
    }
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof file)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    *reinterpret_cast<int*>(CMSG_DATA(header)) = file;
    if (::sendmsg(sockets[0], &message, 0) != 1) return 3;
    tell_test(pipe);
    hear_test(pipe);
    return 0;
  });
  exporter.hear();
  Process importer([&](int) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (!start() || ::recvmsg(sockets[1], &message, 0) != 1) return 1;
    const std::intptr_t file = *reinterpret_cast<int*>(CMSG_DATA(CMSG_FIRSTHDR(&message)));
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    const bool mapped = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(file),
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS &&
                        cuMemAddressReserve(&address, 2 * MiB, 0, 0, 0) == CUDA_SUCCESS &&
                        cuMemMap(address, 2 * MiB, 0, handle, 0) == CUDA_SUCCESS &&
                        allow(address, 2 * MiB) == CUDA_SUCCESS;
    unsigned char last = 0;
    if (!mapped || cuMemcpyDtoH(&last, address + 2 * MiB - 1, 1) != CUDA_SUCCESS) return 2;
    return last == 33 ? 0 : 3;
  });
  CHECK(importer.wait() == 0);
  exporter.tell();
  CHECK(exporter.wait() == 0);
  ::close(sockets[0]);
  ::close(sockets[1]);
}
