// SPDX-License-Identifier: Apache-2.0
// Programs whose memory is recorded: they say what they do, in the words of the trace.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/hazards/program.hpp"
#include "tests/hazards/victim.hpp"

// cuda.h declares the newest form only.
extern "C" CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);

namespace hazards {
namespace {

void did(const char* what, const char* kind, std::uint64_t address, std::size_t bytes, const char* tag = "") {
  say(std::string(what) + " " + kind + " " + std::to_string(address) + " " + std::to_string(bytes) + " " + tag);
}

std::uint64_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void plain_memory(std::size_t size) {
  CUdeviceptr address = 0;
  must(cuMemAlloc(&address, size));
  did("alloc", "driver", address, size);
  must(cuMemFree(address));
  did("free", "driver", address, size);
  std::size_t pitch = 0;
  must(cuMemAllocPitch(&address, &pitch, 1000, 3, 4));
  did("alloc", "driver", address, pitch * 3);
  must(cuMemFree(address));
  did("free", "driver", address, pitch * 3);
}

void managed_memory(std::size_t size) {
  const Scope scope("weights");
  CUdeviceptr address = 0;
  must(cuMemAlloc(&address, size));
  did("alloc", "driver", address, size, "weights");
  must(cuMemFreeAsync(address, nullptr));
  did("free", "driver", address, size, "weights");
}

void stream_ordered_and_unified_memory(std::size_t size) {
  const Stream stream;
  CUdeviceptr address = 0;
  must(cuMemAllocAsync(&address, size, stream));
  did("alloc", "async", address, size);
  must(cuMemFreeAsync(address, stream));
  did("free", "async", address, size);
  must(cuMemAllocManaged(&address, size, CU_MEM_ATTACH_GLOBAL));
  did("alloc", "managed", address, size);
  must(cuMemFree(address));
  did("free", "managed", address, size);
}

void host_memory(std::size_t size) {
  void* pointer = nullptr;
  must(cuMemHostAlloc(&pointer, size, 0));
  did("alloc", "host_pinned", number_of(pointer), size);
  must(cuMemFreeHost(pointer));
  did("free", "host_pinned", number_of(pointer), size);
  void* own = std::aligned_alloc(4096, size);
  must(cuMemHostRegister(own, size, 0));
  did("alloc", "host_registered", number_of(own), size);
  must(cuMemHostUnregister(own));
  did("free", "host_registered", number_of(own), size);
  std::free(own);
}

/// As PyTorch's expandable segments and NCCL do; the handle is given up before its mapping.
void mapped_memory(std::size_t size) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  must(cuMemCreate(&handle, size, &properties, 0));
  did("alloc", "handle", handle, size);
  must(cuMemAddressReserve(&address, size, 0, 0, 0));
  must(cuMemMap(address, size, 0, handle, 0));
  did("map", "handle", address, size);
  must(cuMemRelease(handle));
  must(cuMemUnmap(address, size));
  did("unmap", "handle", address, size);
  did("free", "handle", handle, size);
  must(cuMemAddressFree(address, size));
}

int every_kind(const Arguments&) {
  use_device();
  for (std::size_t i = 1; i <= 3; ++i) {
    const std::size_t size = 2 * mib * i;
    plain_memory(size);
    managed_memory(size);
    stream_ordered_and_unified_memory(size);
    host_memory(size);
    mapped_memory(size);
  }
  CUdeviceptr address = 0;
  must(cuMemAlloc(&address, std::size_t{1} << 40) == CUDA_ERROR_OUT_OF_MEMORY, "the device is too small");
  did("out_of_memory", "driver", 0, std::size_t{1} << 40);
  const Scope scope("weights");
  must(cuMemAlloc(&address, std::size_t{1} << 40) == CUDA_ERROR_OUT_OF_MEMORY, "for a block too");
  did("out_of_memory", "unknown", 0, std::size_t{1} << 40, "weights");
  must(cuMemFree(0x1234) != CUDA_SUCCESS, "what nobody gave is not freed");
  return 0;
}

int context_that_dies(const Arguments&) {
  CUcontext context = nullptr;
  use_device();
  must(cuCtxCreate_v2(&context, 0, 1));
  CUdeviceptr plain = 0;
  must(cuMemAlloc(&plain, mib));
  did("alloc", "driver", plain, mib);
  const Block block("lora", mib);
  did("alloc", "driver", block.address(), mib, "lora");
  must(cuCtxDestroy(context));
  did("free", "driver", block.address(), mib, "lora");
  did("free", "driver", plain, mib);
  return 0;
}

int whole_life(const Arguments&) {
  use_device();
  must(lowtide_phase("rollout"));
  const auto blocks = make_blocks("weights", 2, 2 * mib);
  CUdeviceptr plain = 0;
  must(cuMemAlloc(&plain, 3 * mib));
  pause("weights");
  resume("weights");
  must(lowtide_phase("train"));
  must(lowtide_begin_update("weights", 2));
  must(lowtide_pause("weights", nullptr) == LOWTIDE_ERROR_REFUSED, "an update is under way");
  must(lowtide_commit_update("weights", 2));
  say("done");
  hear();
  return 0;
}

int forks(const Arguments&) {
  use_device();
  const Block block("weights", mib);
  const pid_t child = ::fork();
  if (child == 0) {
    CUdeviceptr address = 0;
    (void)cuMemAlloc(&address, mib);
    _exit(0);
  }
  int status = 0;
  must(::waitpid(child, &status, 0) == child && status == 0, "the child ends");
  did("alloc", "driver", block.address(), mib, "weights");
  return 0;
}

int forks_first(const Arguments&) {
  const pid_t child = ::fork();
  if (child != 0) {
    int status = 0;
    must(::waitpid(child, &status, 0) == child && status == 0, "the child ends");
    return 0;
  }
  use_device();
  const Block block("weights", mib);
  did("alloc", "driver", block.address(), mib, "weights");
  std::exit(0);
}

int execs(const Arguments&) {
  use_device();
  const Block block("lora", mib);
  ::execl("/proc/self/exe", "hazards_victim", "trace-every-kind", nullptr);
  return 1;
}

int lives_on(const Arguments&) {
  use_device();
  std::vector<Block> blocks;
  for (int i = 0; i < 100; ++i) blocks.emplace_back("weights", 4096);
  say("100");
  hear();
  return 0;
}

int waits_at_the_gate(const Arguments&) {
  use_device();
  const Kernels kernels;
  const Stream stream;
  const Block block("weights", mib);
  say("ready");
  hear();
  kernels.add_one(block.address(), mib, stream);
  must(cuStreamSynchronize(stream));
  return 0;
}

}  // namespace

std::vector<Role> trace_roles() {
  return {{"trace-every-kind", every_kind},  {"trace-context", context_that_dies},
          {"trace-life", whole_life},        {"trace-fork", forks},
          {"trace-fork-first", forks_first}, {"trace-exec", execs},
          {"trace-lives-on", lives_on},      {"trace-gate", waits_at_the_gate}};
}

}  // namespace hazards
