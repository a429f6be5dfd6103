// SPDX-License-Identifier: Apache-2.0
//
// A program that is linked with HIP's runtime, and finds its functions in every other way as well.
#include "shim/door_table.h"
#include "tests/interpose/check.hpp"
#include "tests/interpose/fake_hip.hpp"
#include "tests/interpose/fake_state.hpp"

using namespace lowtide::test;

namespace {

hipError_t launch() {
  return hipLaunchKernel(launched, {1, 2, 3}, {4, 5, 6}, reinterpret_cast<void**>(8), 7,
                         reinterpret_cast<hipStream_t>(9));
}

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void* looked_up(const char* name) { return ::dlsym(RTLD_DEFAULT, name); }

void* by_hip(const char* name) {
  void* function = nullptr;
  return hipGetProcAddress(name, &function, 60100000, 0, nullptr) == hipSuccess ? function : nullptr;
}

// The references of this program carry versions, and the doors' exports none.
void references_with_a_version_pass_the_doors() {
  void* pointer = nullptr;
  check(hipMalloc(&pointer, managed_size) == hipSuccess && address_of(pointer) == managed_address, "hipMalloc@hip_4.2");
  check(hipFree(pointer) == hipSuccess, "hipFree@hip_4.2");
  check(hipLaunchKernel_spt(nullptr, {1, 2, 3}, {4, 5, 6}, nullptr, 7, nullptr) == hipSuccess, "of another version");
  const FakeState state;
  check(state.calls("allocate") == 1 && state.calls("free") == 1 && state.calls("gate_enter") == 1,
        "seen by the doors");
  check(state.last("get") == LOWTIDE_HIP, "by those of HIP");
}

void every_way_gives_one_address() {
  void* library = ::dlopen("libamdhip64.so.6", RTLD_NOW);
  void* const ours = reinterpret_cast<void*>(&hipMalloc);
  check(::dlsym(library, "hipMalloc") == ours && looked_up("hipMalloc") == ours, "dlsym");
  check(::dlvsym(library, "hipMalloc", "hip_4.2") == ours, "dlvsym");
  check(::dlvsym(library, "hipMalloc", "hip_6.1") == nullptr, "the vendor's versions hold");
  check(by_hip("hipMalloc") == ours, "hipGetProcAddress");
  check(by_hip("hipGetProcAddress") == reinterpret_cast<void*>(&hipGetProcAddress), "hipGetProcAddress of itself");
  check(looked_up("hipMemcpy") == nullptr && by_hip("hipMemcpy") == nullptr, "what this runtime lacks is not there");
  check(!FakeState().loaded(), "looking up starts nothing");
}

void aggregates_arrive_whole() {
  for (int i = 0; i < 2; ++i) {
    check(launch() == hipSuccess, "12 bytes in registers");
    check(hipMemset3D({nullptr, 1, 2, 3}, 4, {5, 6, 7}) == hipSuccess, "32 bytes on the stack");
    check(_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
              nullptr, 1, 2, 3, 4, 5, 6, 7, nullptr, nullptr, nullptr, nullptr, reinterpret_cast<hipEvent_t>(8), 9) ==
              hipSuccess,
          "fourteen arguments, by a C++ name");
  }
  const FakeState state;
  check(state.calls("gate_enter") == 6 && state.calls("gate_leave") == 6, "each passed the gate");
  state.set_gate(2);
  const int calls = fake_hip_calls();
  check(launch() == hipErrorOutOfMemory && fake_hip_calls() == calls, "a closed gate answers, and nothing is launched");
}

void managed_calls_are_answered() {
  void* pointer = nullptr;
  check(hipExtMallocWithFlags(&pointer, managed_size, 0) == hipSuccess && address_of(pointer) == managed_address,
        "ours");
  check(hipExtMallocWithFlags(&pointer, managed_size, 1) == hipSuccess && pointer == runtime_address,
        "of another kind");
  hipPitchedPtr memory{};
  check(hipMalloc3D(&memory, {100, managed_size / 2, 2}) == hipSuccess && memory.pitch == 512 && memory.xsize == 100 &&
            memory.ysize == managed_size / 2 && address_of(memory.ptr) == managed_address,
        "a volume of ours");
  check(hipMalloc3D(&memory, {100, 1, 1}) == hipSuccess && memory.ptr == runtime_address, "a volume of the runtime's");
  const int calls = fake_hip_calls();
  check(hipHostFree(reinterpret_cast<void*>(managed_address)) == hipSuccess && fake_hip_calls() == calls,
        "every free knows our blocks");
  check(hipFree(runtime_address) == hipSuccess && fake_hip_calls() == calls + 1, "and the runtime's go to it");
}

void addresses_tell_of_the_block() {
  void* const inside = reinterpret_cast<void*>(block_address + 16);
  hipPointerAttribute_t all{};
  void* base = nullptr;
  size_t size = 0;
  int value = -1;
  check(hipPointerGetAttributes(&all, inside) == hipSuccess, "hipPointerGetAttributes");
  check(all.memoryType == 2 && all.device == block_device && all.devicePointer == inside, "device memory, as 6.x says");
  check(hipPointerGetAttribute(&value, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == hipSuccess &&
            value == block_device,
        "its device");
  check(hipMemGetAddressRange(&base, &size, inside) == hipSuccess && address_of(base) == block_address &&
            size == block_size,
        "its range");
  check(hipMemPtrGetInfo(inside, &size) == hipSuccess && size == block_size, "its size");
  hipIpcMemHandle_t handle{};
  check(hipIpcGetMemHandle(&handle, inside) == hipErrorNotSupported, "no handle of ours");
  check(hipIpcGetMemHandle(&handle, runtime_address) == hipSuccess, "but of the runtime's");
}

void devices_peers_and_captures_are_told() {
  const auto stream = reinterpret_cast<hipStream_t>(5);
  hipGraph_t graph = nullptr;
  check(hipDeviceEnablePeerAccess(1, 0) == hipSuccess, "peer access");
  check(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal) == hipSuccess, "a capture begins");
  check(hipStreamEndCapture(stream, &graph) == hipSuccess, "and ends");
  check(hipDeviceReset() == hipSuccess, "a reset");
  const FakeState state;
  check(state.last("peer_access") == 1 && state.calls("capture_begin") == 1, "told");
  check(state.last("capture_began") == 5 && state.last("capture_ended") == 5, "of that stream");
  check(state.last("primary_context_resetting") == 2, "of the current device");
}

// Whatever Lowtide's own calls leave on the thread. The stand-in's allocations leave an error.
void the_programs_last_error_is_its_own() {
  void* pointer = nullptr;
  check(hipInit(0) == hipSuccess, "hipInit");
  FakeState().function<void(void (*)())>("fake_state_set_allocating")(&fake_hip_fail);
  check(hipMalloc(&pointer, managed_size) == hipSuccess, "an allocation that failed once inside");
  check(hipGetLastError() == hipSuccess, "leaves no error behind");
  fake_hip_fail();
  check(hipMalloc(&pointer, managed_size) == hipSuccess && hipGetLastError() == hipErrorInvalidValue,
        "an error of the program's stays");
}

void works_as_if_alone() {
  void* pointer = nullptr;
  check(hipInit(0) == hipSuccess, "hipInit");
  check(hipMalloc(&pointer, managed_size) == hipSuccess && pointer == runtime_address, "hipMalloc");
  check(launch() == hipSuccess, "hipLaunchKernel");
  check(hipFree(pointer) == hipSuccess, "hipFree");
  check(fake_hip_calls() == 4, "every call reached the runtime");
}

constexpr Scenario scenarios[] = {
    {"references_with_a_version_pass_the_doors", references_with_a_version_pass_the_doors},
    {"every_way_gives_one_address", every_way_gives_one_address},
    {"aggregates_arrive_whole", aggregates_arrive_whole},
    {"managed_calls_are_answered", managed_calls_are_answered},
    {"addresses_tell_of_the_block", addresses_tell_of_the_block},
    {"devices_peers_and_captures_are_told", devices_peers_and_captures_are_told},
    {"the_programs_last_error_is_its_own", the_programs_last_error_is_its_own},
    {"works_as_if_alone", works_as_if_alone},
};

}  // namespace

int main(int argc, char** argv) { return run_scenario(scenarios, argc, argv); }
