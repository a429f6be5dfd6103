// SPDX-License-Identifier: Apache-2.0
// Each persona shows its defect, and what one does about it helps.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "backends/hip/hip_declarations.h"
#include "tests/catch.hpp"

// The process of these tests never calls HIP itself: each case plays in a process of its own.

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

/// What a playing process tells the test: the expectations that do not hold.
class Report {
 public:
  explicit Report(int file) : file_(file) {}
  void expect(bool holds, const char* what) const {
    if (!holds) ::dprintf(file_, "not so: %s\n", what);
  }
  void works(hipError_t error, const char* call) const {
    if (error != hipSuccess) ::dprintf(file_, "%s answered %s\n", call, hipGetErrorName(error));
  }

 private:
  int file_;
};

/// Everything that is said on `file` until the other side is gone.
std::string read_all(int file) {
  std::string text;
  char part[512];
  for (ssize_t length; (length = ::read(file, part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(length));
  return text;
}

/// Runs `play` in a process with that persona. Its report, and its stderr.
std::string played(const char* persona, const std::function<void(const Report&)>& play) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("LOWTIDE_SIM_PERSONA", persona, 1);
    ::setenv("LOWTIDE_SIM_MEMORY", "256M", 1);
    ::dup2(ends[1], STDERR_FILENO);
    play(Report(ends[1]));
    ::_exit(0);
  }
  ::close(ends[1]);
  auto text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? text : text + "the process did not end by itself\n";
}

hipMemAllocationProp device_memory() {
  hipMemAllocationProp properties{};
  properties.type = hipMemAllocationTypePinned;
  properties.location = {hipMemLocationTypeDevice, 0};
  return properties;
}

hipError_t create(hipMemGenericAllocationHandle_t& handle, std::size_t size) {
  const auto properties = device_memory();
  return hipMemCreate(&handle, size, &properties, 0);
}

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  (void)hipMemGetInfo(&free, &total);
  return free;
}

int open_files() {
  int count = 0;
  for (int file = 0; file < 256; ++file) count += ::fcntl(file, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

/// Address space with accessible memory behind it.
struct Mapped {
  Mapped(const Report& its_report, std::size_t its_size, void* at = nullptr) : report(its_report), size(its_size) {
    report.works(hipMemAddressReserve(&address, size, 0, at, 0), "hipMemAddressReserve");
    furnish();
  }
  void furnish() {
    const hipMemAccessDesc access{{hipMemLocationTypeDevice, 0}, hipMemAccessFlagsProtReadWrite};
    report.works(create(handle, size), "hipMemCreate");
    report.works(hipMemMap(address, size, 0, handle, 0), "hipMemMap");
    report.works(hipMemSetAccess(address, size, &access, 1), "hipMemSetAccess");
    report.works(hipMemset(address, 7, size), "hipMemset");
  }
  void take_away() {
    report.works(hipMemUnmap(address, size), "hipMemUnmap");
    report.works(hipMemRelease(handle), "hipMemRelease");
  }
  void free_address() { report.works(hipMemAddressFree(address, size), "hipMemAddressFree"); }

  const Report& report;
  std::size_t size;
  void* address = nullptr;
  hipMemGenericAllocationHandle_t handle = nullptr;
};

int vmm_attribute() {
  int supported = -1;
  const auto attribute = static_cast<hipDeviceAttribute_t>(lowtide_hipDeviceAttributeVirtualMemoryManagementSupported);
  return hipDeviceGetAttribute(&supported, attribute, 0) == hipSuccess ? supported : -1;
}

}  // namespace

TEST_CASE("a healthy device takes memory away from an address and gives it to others") {
  CHECK(played("mi300x", [](const Report& report) {
          const auto before = free_memory();
          Mapped memory(report, 64 * MiB);
          report.expect(vmm_attribute() == 1, "the attribute says that there is virtual memory management");
          report.expect(free_memory() == before - memory.size, "mapped memory is in use");
          memory.take_away();
          report.expect(free_memory() == before, "memory comes back while its address is reserved");
          memory.furnish();
          memory.take_away();
          void* const address = memory.address;
          memory.free_address();
          Mapped again(report, 64 * MiB, address);
          report.expect(again.address == address, "an address can be had again");
          hipIpcMemHandle_t handle;
          report.expect(hipIpcGetMemHandle(&handle, again.address) != hipSuccess, "mapped memory has no IPC handle");
        }) == "");
}

TEST_CASE("without virtual memory management, the attribute and the calls say so, and plain memory works") {
  CHECK(played("mi250x-novmm", [](const Report& report) {
          void* memory = nullptr;
          hipMemGenericAllocationHandle_t handle = nullptr;
          report.expect(vmm_attribute() == 0, "the attribute says no");
          report.expect(hipMemAddressReserve(&memory, 2 * MiB, 0, nullptr, 0) == hipErrorNotSupported, "no reserve");
          report.expect(create(handle, 2 * MiB) == hipErrorNotSupported, "no create");
          report.works(hipMalloc(&memory, 2 * MiB), "hipMalloc");
          report.works(hipFree(memory), "hipFree");
        }) == "");
}

TEST_CASE("pages that are kept come back when their address range is freed, and not before") {
  CHECK(played("rocm72-keeps-pages", [](const Report& report) {
          const auto before = free_memory();
          Mapped memory(report, 64 * MiB);
          memory.take_away();
          report.expect(free_memory() == before - memory.size, "unmapped and released, the memory is still in use");
          void* const address = memory.address;
          memory.free_address();
          report.expect(free_memory() == before, "with its address free, the memory comes back");
          Mapped again(report, 64 * MiB, address);
          report.expect(again.address == address, "the same address is given again");
        }) == "");
}

TEST_CASE("an address that is asked for comes elsewhere") {
  CHECK(played("moves-addresses", [](const Report& report) {
          Mapped memory(report, 64 * MiB);
          memory.take_away();
          void* const address = memory.address;
          memory.free_address();
          Mapped again(report, 64 * MiB, address);
          report.expect(again.address != address, "another address is given");
        }) == "");
}

TEST_CASE("large handles fail, small ones do not, and each is unmapped by itself") {
  CHECK(played("large-handles-fail", [](const Report& report) {
          hipMemGenericAllocationHandle_t handles[2] = {};
          report.expect(create(handles[0], 64 * MiB) == hipErrorOutOfMemory, "a large handle is refused");
          void* address = nullptr;
          report.works(hipMemAddressReserve(&address, 4 * MiB, 0, nullptr, 0), "hipMemAddressReserve");
          auto* const second = static_cast<char*>(address) + 2 * MiB;
          report.works(create(handles[0], 2 * MiB), "hipMemCreate");
          report.works(create(handles[1], 2 * MiB), "hipMemCreate");
          report.works(hipMemMap(address, 2 * MiB, 0, handles[0], 0), "hipMemMap");
          report.works(hipMemMap(second, 2 * MiB, 0, handles[1], 0), "hipMemMap");
          report.expect(hipMemUnmap(address, 4 * MiB) == hipErrorInvalidValue, "two mappings at once are refused");
          report.works(hipMemUnmap(address, 2 * MiB), "hipMemUnmap");
          report.works(hipMemUnmap(second, 2 * MiB), "hipMemUnmap");
        }) == "");
}

TEST_CASE("a descriptor is open for each handle, so that many handles fail where few do not") {
  CHECK(played("descriptor-per-handle", [](const Report& report) {
          hipMemGenericAllocationHandle_t handles[2] = {};
          report.works(create(handles[0], 2 * MiB), "hipMemCreate");
          const int with_first = open_files();
          report.works(create(handles[1], 2 * MiB), "hipMemCreate");
          report.expect(open_files() == with_first + 1, "one more handle, one more descriptor");
          const int next = ::dup(STDERR_FILENO);
          ::close(next);
          const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
          ::setrlimit(RLIMIT_NOFILE, &limit);
          hipMemGenericAllocationHandle_t third = nullptr;
          report.expect(create(third, 2 * MiB) == hipErrorOutOfMemory, "at the limit, a small handle is refused");
          report.works(hipMemRelease(handles[1]), "hipMemRelease");
          report.works(create(third, 2 * MiB), "hipMemCreate");
          report.works(hipMemRelease(third), "hipMemRelease");
          report.works(hipMemRelease(handles[0]), "hipMemRelease");
          report.expect(open_files() == with_first - 1, "released handles have none");
        }) == "");
}

TEST_CASE("an IPC handle of mapped memory is given, where it should be refused") {
  CHECK(played("ipc-on-vmm", [](const Report& report) {
          Mapped memory(report, 2 * MiB);
          hipIpcMemHandle_t handle;
          report.works(hipIpcGetMemHandle(&handle, memory.address), "hipIpcGetMemHandle");
        }) == "");
}

TEST_CASE("an unknown persona is refused with one line that names it") {
  const auto text = played(
      "gfx9000", [](const Report& report) { report.expect(hipInit(0) == hipErrorInvalidValue, "hipInit is refused"); });
  CHECK(text.find("LOWTIDE_SIM_PERSONA=gfx9000") != std::string::npos);
  CHECK(text.find('\n') == text.size() - 1);
}
