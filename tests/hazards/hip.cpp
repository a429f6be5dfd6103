// SPDX-License-Identifier: Apache-2.0
// A program on HIP's runtime: plain linked calls, which the preload answers, over the simulated AMD GPU.
#include <dlfcn.h>
#include <unistd.h>

#include <functional>
#include <memory>

#include "shim/preload/hip_functions.h"
#include "tests/catch.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"

using namespace hazards;

namespace {

void must_hip(hipError_t result, int line = __builtin_LINE()) {
  must(result == hipSuccess, hipGetErrorName(result), line);
}

std::string ask(const std::string& request) { return hazards::ask(::getpid(), request); }

/// Device memory from hipMalloc under a tag, with bytes that can be told apart. Freed with it.
class HipBlock {
 public:
  HipBlock(const char* tag, std::size_t size) : content_(size) {
    runtime_directory();
    const Scope scope(tag);
    must_hip(hipMalloc(&address_, size));
    for (std::size_t i = 0; i < size; ++i) content_[i] = static_cast<std::uint8_t>(i * 31 + i / 4099);
    must_hip(hipMemcpy(address_, content_.data(), size, hipMemcpyHostToDevice));
  }
  ~HipBlock() {
    if (address_ != nullptr) (void)hipFree(address_);
  }
  HipBlock(const HipBlock&) = delete;
  HipBlock& operator=(const HipBlock&) = delete;

  void* address() const { return address_; }
  std::size_t size() const { return content_.size(); }
  bool intact() const {
    std::vector<std::uint8_t> bytes(content_.size());
    must_hip(hipMemcpy(bytes.data(), address_, bytes.size(), hipMemcpyDeviceToHost));
    return bytes == content_;
  }
  hipError_t free() { return hipFree(std::exchange(address_, nullptr)); }

 private:
  void* address_ = nullptr;
  std::vector<std::uint8_t> content_;
};

class HipStream {
 public:
  HipStream() { must_hip(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking)); }
  ~HipStream() { (void)hipStreamDestroy(stream_); }
  HipStream(const HipStream&) = delete;
  HipStream& operator=(const HipStream&) = delete;
  operator hipStream_t() const { return stream_; }

 private:
  hipStream_t stream_ = nullptr;
};

hipFunction_t add_one() {
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
  must_hip(hipModuleLoadData(&module, LOWTIDE_SIM_IMAGE));
  must_hip(hipModuleGetFunction(&function, module, "sim_add_one"));
  return function;
}

hipError_t launch(hipFunction_t function, const HipBlock& block, hipStream_t stream) {
  void* address = block.address();
  std::uint64_t bytes = block.size();
  void* parameters[] = {&address, &bytes};
  return hipModuleLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace

TEST_CASE("memory of hipMalloc under a scope is given back and comes back", "[hip]") {
  HipBlock block("weights", 4 * mib + 5);
  const HipBlock other(nullptr, mib);
  const auto before = used_bytes();
  CHECK(blocks_of("weights") == 1);
  pause("weights");
  CHECK(used_bytes() <= before - 4 * mib);
  CHECK(other.intact());
  resume("weights");
  CHECK(block.intact());
  CHECK(used_bytes() == before);
}

// Larger than a handle may be on some releases, and than what is free for a trial of such handles.
TEST_CASE("memory of many handles is given back and comes back, on a device that it half fills", "[hip]") {
  const HipBlock block("weights", 140 * mib + 5);
  const auto before = used_bytes();
  pause("weights");
  CHECK(used_bytes() <= before - 140 * mib);
  resume("weights");
  CHECK(block.intact());
}

TEST_CASE("what touches memory waits at the gate while HIP's process is paused from outside", "[hip]") {
  const HipBlock block("weights", 2 * mib);
  const HipStream stream;
  const auto function = add_one();
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  must_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  must_hip(launch(function, block, stream));
  must_hip(hipStreamEndCapture(stream, &graph));
  must_hip(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  std::vector<std::uint8_t> bytes(block.size());
  const std::vector<std::function<hipError_t()>> works{
      [&] { return hipMemcpy(bytes.data(), block.address(), 64, hipMemcpyDeviceToHost); },
      [&] { return hipMemcpyAsync(bytes.data() + mib, block.address(), 64, hipMemcpyDeviceToHost, stream); },
      [&] { return hipMemcpyDtoH(bytes.data() + mib + 64, block.address(), 64); },
      [&] { return hipMemset(block.address(), 7, 64); },
      [&] { return hipMemsetD32Async(block.address(), 7, 64, stream); },
      [&] { return launch(function, block, stream); },
      [&] { return hipGraphLaunch(executable, stream); },
  };
  REQUIRE(is_ok(ask("pause tag=weights")));
  CHECK(says(ask("status"), "\"gate\":\"closed\""));
  std::vector<std::unique_ptr<OtherThread>> threads;
  for (const auto& work : works) threads.push_back(std::make_unique<OtherThread>([&work] { must_hip(work()); }));
  for (auto& thread : threads) {
    thread->wait_until_asleep_or_done();
    CHECK_FALSE(thread->done());
  }
  CHECK(info("weights").bytes_resident == 0);
  CHECK(is_ok(ask("resume tag=weights")));
  for (auto& thread : threads) CHECK_NOTHROW(thread->join());
  must_hip(hipStreamSynchronize(stream));
}

TEST_CASE("a block of HIP's that is freed while parked is gone after the resume", "[hip]") {
  HipBlock kept("weights", mib);
  HipBlock freed("weights", mib);
  pause("weights");
  CHECK(freed.free() == hipSuccess);
  CHECK(blocks_of("weights") == 1);
  resume("weights");
  CHECK(kept.intact());
}

TEST_CASE("a parked block still is device memory of a size to HIP, and has no handle for others", "[hip]") {
  const HipBlock block("weights", mib + 17);
  pause("weights");
  hipPointerAttribute_t about{};
  void* base = nullptr;
  std::size_t size = 0;
  int device = -1;
  CHECK(hipPointerGetAttributes(&about, block.address()) == hipSuccess);
  CHECK((about.memoryType == 2 && about.device == 0 && about.devicePointer == block.address()));
  CHECK(hipPointerGetAttribute(&device, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block.address()) == hipSuccess);
  CHECK(device == 0);
  CHECK(hipMemGetAddressRange(&base, &size, block.address()) == hipSuccess);
  CHECK((base == block.address() && size == block.size()));
  hipIpcMemHandle_t handle{};
  CHECK(hipIpcGetMemHandle(&handle, block.address()) == hipErrorInvalidValue);
  resume("weights");
  CHECK(hipIpcGetMemHandle(&handle, block.address()) == hipErrorInvalidValue);
  CHECK(block.intact());
}

TEST_CASE("a pause during a capture of HIP's is refused, and a free then waits for its end", "[hip]") {
  const HipBlock block("weights", mib);
  HipBlock freed("weights", mib);
  const HipStream stream;
  const auto function = add_one();
  hipGraph_t graph = nullptr;
  must_hip(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  must_hip(launch(function, block, stream));
  void* during = nullptr;
  {
    const Scope scope("weights");
    must_hip(hipMalloc(&during, 64 * kib));
  }
  CHECK(lowtide_pause("weights", nullptr) == LOWTIDE_ERROR_REFUSED);
  CHECK(std::string(lowtide_last_error()).find("capture") != std::string::npos);
  CHECK(freed.free() == hipSuccess);
  must_hip(hipStreamEndCapture(stream, &graph));
  must_hip(hipGraphDestroy(graph));
  pause("weights");
  resume("weights");
  CHECK(block.intact());
  CHECK(hipFree(during) == hipSuccess);
}

TEST_CASE("a reset of a device of HIP's takes its blocks, and not those of another", "[hip]") {
  must_hip(hipSetDevice(1));
  HipBlock gone("weights", mib);
  must_hip(hipSetDevice(0));
  const HipBlock kept("weights", mib);
  CHECK(info("weights", 1).blocks == 1);
  must_hip(hipSetDevice(1));
  must_hip(hipDeviceReset());
  CHECK(blocks_of("weights") == 1);
  // Quietly; or as the runtime answers, where it has the address back.
  const auto freed = gone.free();
  CHECK((freed == hipSuccess || freed == hipErrorInvalidValue));
  CHECK(blocks_of("weights") == 1);
  const HipBlock again("weights", mib);
  must_hip(hipSetDevice(0));
  pause("weights");
  resume("weights");
  CHECK(kept.intact());
  CHECK(again.intact());
}

TEST_CASE("a function that HIP itself looked up is a door as well", "[hip]") {
  runtime_directory();
  void* found = nullptr;
  must_hip(hipGetProcAddress("hipMalloc", &found, 60000000, 0, nullptr));
  void* const library = ::dlopen("libamdhip64.so.6", RTLD_NOW);
  for (void* const way : {found, ::dlsym(library, "hipMalloc"), ::dlvsym(library, "hipMalloc", "hip_4.2")}) {
    const Scope scope("looked_up");
    void* address = nullptr;
    must_hip(reinterpret_cast<decltype(&hipMalloc)>(way)(&address, mib));
    CHECK(blocks_of("looked_up") == 1);
    must_hip(hipFree(address));
    CHECK(blocks_of("looked_up") == 0);
  }
}

TEST_CASE("in a process of HIP's the doors of CUDA let everything pass", "[hip]") {
  const HipBlock block("weights", mib);
  use_device();
  const Block cuda("weights", mib);
  CHECK(blocks_of("weights") == 1);
  REQUIRE(is_ok(ask("pause tag=weights")));
  CHECK(cuda.intact());  // and does not wait at the gate
  CHECK(is_ok(ask("resume tag=weights")));
  CHECK(block.intact());
}

TEST_CASE("under a default tag every allocation of HIP's is managed, and a pitched one too", "[.hip_default]") {
  const HipBlock block(nullptr, mib);
  void* rows = nullptr;
  std::size_t pitch = 0;
  must_hip(hipMallocPitch(&rows, &pitch, 1000, 100));
  CHECK(pitch % 512 == 0);
  CHECK(blocks_of("kv_cache") == 2);
  must_hip(hipFree(rows));
  CHECK(blocks_of("kv_cache") == 1);
}

TEST_CASE("a process of HIP's without any tag answers when it is asked", "[.hip_untagged]") {
  const HipBlock block(nullptr, mib);
  CHECK(is_ok(ask("status")));
}

// Run without the preload: nothing tells the library of HIP but that it is there.
TEST_CASE("without doors the C API serves the vendor whose library is loaded", "[.hip_api]") {
  int count = 0;
  must_hip(hipGetDeviceCount(&count));
  const Scope scope("weights");
  CHECK(lowtide_malloc(mib, 7, nullptr) == nullptr);
  CHECK(std::string(lowtide_last_error()) == "there is no device 7: HIP has 2");
  void* const address = lowtide_malloc(mib, 1, nullptr);
  REQUIRE(address != nullptr);
  CHECK(blocks_of("weights") == 1);
  std::vector<std::uint8_t> bytes(mib, 0x5a);
  std::vector<std::uint8_t> back(mib);
  must_hip(hipMemcpy(address, bytes.data(), mib, hipMemcpyHostToDevice));
  pause("weights");
  resume("weights");
  must_hip(hipMemcpy(back.data(), address, mib, hipMemcpyDeviceToHost));
  CHECK(back == bytes);
  hipPointerAttribute_t about{};
  CHECK((hipPointerGetAttributes(&about, address) == hipSuccess && about.device == 1));
  lowtide_free(address, mib, 1, nullptr);
  CHECK(blocks_of("weights") == 0);
}
