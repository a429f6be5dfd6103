// SPDX-License-Identifier: Apache-2.0
// Parked blocks that stay readable: what a program does with them while no device memory is free.
#include <unistd.h>

#include <memory>
#include <vector>

#include "tests/catch.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"

extern "C" CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);

using namespace hazards;

namespace {

/// The tag's parked blocks stay readable while this lives.
class Readable {
 public:
  Readable() { must(lowtide_set("tag.lora.paused_access", "host")); }
  ~Readable() { lowtide_set("tag.lora.paused_access", "fault"); }
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;
};

/// Takes what the device has left.
class Hog {
 public:
  Hog() {
    for (std::size_t piece = 64 * mib; piece >= 64 * kib;) {
      CUdeviceptr address = 0;
      if (cuMemAlloc(&address, piece) == CUDA_SUCCESS)
        taken_.push_back(address);
      else
        piece /= 2;
    }
  }
  ~Hog() {
    for (const auto address : taken_) cuMemFree(address);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  std::vector<CUdeviceptr> taken_;
};

void* pointer(const Block& block) { return reinterpret_cast<void*>(block.address()); }

bool backup_is_content(const Block& block) {
  std::vector<std::uint8_t> bytes(block.size());
  must(lowtide_read_paused(pointer(block), bytes.data(), bytes.size()));
  return bytes == block.content();
}

}  // namespace

TEST_CASE("copy out of a parked adapter with no device memory free", "[paused_access]") {
  use_device();
  const Readable readable;
  const Kernels kernels;
  const Stream stream;
  const auto adapters = make_blocks("lora", 3, 3 * mib);
  const auto small = make_blocks("lora", 5, 3000);
  Block active(nullptr, 4 * mib);
  const auto before = used_bytes();
  CHECK(pause("lora").blocks == 8);
  CHECK(used_bytes() + 11 * mib <= before);
  CHECK(info("lora").bytes_backup >= 9 * mib);
  {
    const Hog hog;
    REQUIRE(free_bytes() < 64 * kib);
    for (const auto* group : {&adapters, &small}) {
      for (const auto& adapter : *group) {
        std::vector<std::uint8_t> found(adapter.size());
        must(cuMemcpyDtoD(active.address(), adapter.address(), adapter.size()));
        must(cuMemcpyDtoH(found.data(), active.address(), found.size()));
        CHECK(found == adapter.content());
        must(cuMemsetD8(active.address(), 0, active.size()));
        kernels.copy(active.address(), adapter.address(), adapter.size(), stream);
        must(cuStreamSynchronize(stream));
        must(cuMemcpyDtoH(found.data(), active.address(), found.size()));
        CHECK(found == adapter.content());
        CHECK(adapter.intact());
      }
    }
  }
  resume("lora");
  CHECK(used_bytes() == before);
  CHECK(info("lora").bytes_backup == 0);
  CHECK(intact(adapters));
  CHECK(intact(small));
  kernels.add_one(adapters[0].address(), adapters[0].size(), stream);  // it is the program's to write again
  must(cuStreamSynchronize(stream));
}

TEST_CASE("a kernel that writes to a parked adapter fails and the bytes stay", "[paused_access]") {
  use_device();
  const Readable readable;
  const Block adapter("lora", 3 * mib);
  pause("lora");
  CUcontext other = nullptr;
  must(cuCtxCreate_v2(&other, 0, 0));
  SECTION("a kernel") {
    const Kernels kernels;
    kernels.add_one(adapter.address(), adapter.size(), nullptr);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  SECTION("a fill") { CHECK(cuMemsetD8(adapter.address(), 0, adapter.size()) == CUDA_ERROR_ILLEGAL_ADDRESS); }
  must(cuCtxDestroy(other));
  use_device();
  CHECK(backup_is_content(adapter));
  CHECK(adapter.intact());
  resume("lora");
  CHECK(adapter.intact());
}

TEST_CASE("read_paused and write_paused of a readable adapter", "[paused_access]") {
  use_device();
  const Readable readable;
  Block adapter("lora", 3 * mib + 77);
  pause("lora");
  CHECK(backup_is_content(adapter));
  const std::vector<std::uint8_t> other(adapter.size(), 0x3d);
  must(lowtide_write_paused(pointer(adapter), other.data(), other.size()));
  adapter.expect(0x3d);
  CHECK(backup_is_content(adapter));
  CHECK(adapter.intact());
  resume("lora");
  CHECK(adapter.intact());
}

TEST_CASE("a resume waits for the kernel that still reads the parked adapter", "[paused_access]") {
  use_device();
  const Readable readable;
  const Kernels kernels;
  const Stream stream;
  const Block adapter("lora", 24 * mib);
  Block active(nullptr, 24 * mib);
  Block slow(nullptr, mib);
  pause("lora");
  kernels.fill_slowly(slow.address(), slow.size(), 7, 150, stream);
  kernels.copy(active.address(), adapter.address(), adapter.size(), stream);
  resume("lora");
  must(cuStreamSynchronize(stream));
  CHECK(active.read() == adapter.content());
  CHECK(adapter.intact());
}

TEST_CASE("behind a held gate a reader of a parked adapter waits as all do, and without a hold it goes on",
          "[paused_access]") {
  const auto context = use_device();
  const Readable readable;
  const Block adapter("lora", 2 * mib);
  const auto read_elsewhere = [&] {
    return std::make_unique<OtherThread>([&] {
      must(cuCtxSetCurrent(context));
      must(adapter.intact(), "intact");
    });
  };
  REQUIRE(is_ok(ask(::getpid(), "pause tag=lora hold=0")));
  CHECK(info("lora").bytes_resident == 0);
  CHECK_NOTHROW(read_elsewhere()->join());
  REQUIRE(is_ok(ask(::getpid(), "resume tag=lora")));
  REQUIRE(is_ok(ask(::getpid(), "pause tag=lora hold=1")));
  const auto reader = read_elsewhere();
  reader->wait_until_asleep_or_done();
  CHECK_FALSE(reader->done());
  REQUIRE(is_ok(ask(::getpid(), "resume tag=lora")));
  CHECK_NOTHROW(reader->join());
}
