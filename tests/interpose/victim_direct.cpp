// SPDX-License-Identifier: Apache-2.0
//
// A program that is linked with the driver and calls it by name, as Triton and custom operators do.
#include <pthread.h>

#include "tests/interpose/check.hpp"
#include "tests/interpose/fake_driver.hpp"
#include "tests/interpose/fake_state.hpp"

using namespace lowtide::test;

namespace {

CUresult launch() {
  return cuLaunchKernel(reinterpret_cast<CUfunction>(1), 2, 3, 4, 5, 6, 7, 8, reinterpret_cast<CUstream>(9),
                        reinterpret_cast<void**>(10), reinterpret_cast<void**>(11));
}

// A first call through the binding thunk must keep every argument, also those on the stack.
void first_call_keeps_its_arguments() {
  check(launch() == CUDA_SUCCESS, "all eleven arguments arrive at the first call");
  const int calls = fake_driver_calls();
  check(launch() == CUDA_SUCCESS, "and at the second");
  check(fake_driver_calls() == calls + 1, "which is one call of the driver");
}

void works_as_if_alone() {
  CUdeviceptr pointer = 0;
  check(cuInit(0) == CUDA_SUCCESS, "cuInit");
  check(cuMemAlloc_v2(&pointer, managed_size) == CUDA_SUCCESS && pointer == driver_address, "cuMemAlloc_v2");
  check(cuMemcpyHtoD_v2(pointer, &pointer, 8) == CUDA_SUCCESS, "cuMemcpyHtoD_v2");
  check(cuMemFree_v2(pointer) == CUDA_SUCCESS, "cuMemFree_v2");
  check(launch() == CUDA_SUCCESS, "cuLaunchKernel");
  check(fake_driver_calls() == 5, "every call reached the driver");
}

void observing_opens_nothing() {
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, 1, 0, 0, 0) == CUDA_SUCCESS && address == driver_address, "cuMemAddressReserve");
  check(!FakeState().loaded(), "an observed call does not load liblowtide.so");
}

// The stand-in calls cuMemAlloc_v2 while it is asked for its table.
void opening_does_not_wait_for_itself() {
  check(cuInit(0) == CUDA_SUCCESS, "cuInit");
  const FakeState state;
  check(state.calls("get") == 1 && state.calls("init") == 1, "asked once, used once");
  check(state.calls("allocate") == 0 && fake_driver_calls() == 2, "what it called meanwhile went to the driver");
}

void managed_calls_are_answered() {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  check(cuMemAlloc_v2(&pointer, managed_size) == CUDA_SUCCESS && pointer == managed_address, "a block of ours");
  check(cuMemFree_v2(pointer) == CUDA_SUCCESS, "freed by us");
  check(cuMemAlloc_v2(&pointer, 5) == CUDA_SUCCESS && pointer == driver_address, "not ours: the driver's");
  check(cuMemAllocPitch_v2(&pointer, &pitch, 100, managed_size, 4) == CUDA_SUCCESS && pitch == 512, "pitched, ours");
  check(cuMemAllocPitch_v2(&pointer, &pitch, 100, 1, 4) == CUDA_SUCCESS && pitch == 100, "pitched, the driver's");
  const FakeState state;
  check(cuMemFreeAsync(managed_address, reinterpret_cast<CUstream>(5)) == CUDA_SUCCESS, "stream-ordered free");
  check(state.last("free_stream") == 5, "with its stream");
  check(cuMemFreeAsync_ptsz(managed_address, nullptr) == CUDA_SUCCESS, "per-thread stream");
  check(state.last("free_stream") == reinterpret_cast<std::uint64_t>(CU_STREAM_PER_THREAD), "is said to be that");
  check(cuMemFreeAsync(driver_address, nullptr) == CUDA_SUCCESS, "a foreign free");
}

void gate_is_passed_and_left() {
  check(launch() == CUDA_SUCCESS, "open");
  const FakeState state;
  check(state.calls("gate_enter") == 1 && state.calls("gate_leave") == 1, "entered and left");
  const int before = fake_driver_calls();
  state.set_gate(CUDA_ERROR_OUT_OF_MEMORY);
  check(launch() == CUDA_ERROR_OUT_OF_MEMORY, "a refusal is the answer");
  check(cuMemcpyHtoD_v2(driver_address, nullptr, 0) == CUDA_ERROR_OUT_OF_MEMORY, "for copies too");
  check(fake_driver_calls() == before && state.calls("gate_leave") == 1, "without the driver and without leaving");
}

void memory_for_others_is_marked() {
  CUipcMemHandle ipc{};
  CUmemGenericAllocationHandle handle = 0;
  check(cuIpcGetMemHandle(&ipc, block_address) == CUDA_ERROR_NOT_SUPPORTED, "our block has no IPC handle");
  check(cuIpcGetMemHandle(&ipc, driver_address) == CUDA_SUCCESS, "the driver's has");
  check(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(block_address)) == CUDA_SUCCESS, "retained");
  const FakeState state;
  check(state.last("refuse_ipc") == block_address, "the refusal names the block");
  check(state.last("cuMemRetainAllocationHandle") == block_address, "the block is marked, with the function's name");
}

template <typename Value>
Value attribute(CUpointer_attribute which, CUresult expected = CUDA_SUCCESS) {
  Value value{};
  check(cuPointerGetAttribute(&value, which, block_address + 5) == expected, "cuPointerGetAttribute");
  return value;
}

void check_range() {
  CUdeviceptr base = 0;
  size_t size = 0;
  check(cuMemGetAddressRange_v2(&base, &size, block_address + 5) == CUDA_SUCCESS, "range");
  check(base == block_address && size == block_size, "is the block's");
  check(cuMemGetAddressRange_v2(nullptr, nullptr, block_address) == CUDA_SUCCESS, "both answers are optional");
  check(attribute<std::uint64_t>(CU_POINTER_ATTRIBUTE_CONTEXT) == block_context, "context");
  check(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == block_address, "start");
  check(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE) == block_size, "size");
}

void attributes_tell_of_the_block() {
  check_range();
  const FakeState state;
  attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CUDA_ERROR_INVALID_VALUE);
  state.set_resident(0);
  check_range();
  check(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == block_device, "device of a parked block");
  check(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE, "type");
  check(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == block_address + 5, "pointer");
  check(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED) == 0, "not managed");
  unsigned type = 0;
  CUdeviceptr start = 0;
  unsigned other = 9;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
  void* data[] = {&type, &start, &other};
  check(cuPointerGetAttributes(3, which, data, block_address) == CUDA_SUCCESS, "several at once");
  check(type == CU_MEMORYTYPE_DEVICE && start == block_address && other == 0, "ours are ours, the rest the driver's");
}

void contexts_and_peers_are_told() {
  CUcontext context = nullptr;
  check(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS, "create");
  const FakeState state;
  check(state.last("context_created") == 0x55, "created");
  cuDevicePrimaryCtxRetain(&context, 0);
  check(state.last("context_created") == 0x66, "retained");
  cuCtxDestroy_v2(context);
  check(state.last("context_destroying") == 0x66, "destroying");
  cuDevicePrimaryCtxReset_v2(2);
  cuDevicePrimaryCtxRelease_v2(4);
  check(state.last("primary_context_resetting") == 2 && state.last("primary_context_released") == 4, "primary");
  cuCtxEnablePeerAccess(context, 1);
  check(state.calls("peer_access") == 0, "a refused peer is no peer");
  cuCtxEnablePeerAccess(context, 0);
  check(state.calls("peer_access") == 1 && state.last("peer_access") == 1, "enabled");
  cuCtxDisablePeerAccess(context);
  check(state.last("peer_access") == 0, "disabled");
}

void captures_end_when_they_end() {
  const auto stream = reinterpret_cast<CUstream>(0x99);
  CUgraph graph = nullptr;
  cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const FakeState state;
  check(state.calls("capture_begin") == 1 && state.last("capture_began") == 0x99, "began");
  cuStreamEndCapture(reinterpret_cast<CUstream>(0x11), &graph);
  cuStreamEndCapture(stream, nullptr);
  cuStreamDestroy_v2(reinterpret_cast<CUstream>(0x11));
  check(state.calls("capture_ended") == 0, "another stream, a wrong thread: still capturing");
  check(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the driver's answer stays");
  check(state.calls("capture_ended") == 1, "an invalidated capture is over all the same");
  cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuStreamDestroy_v2(stream);
  check(state.calls("capture_ended") == 2, "destruction of the stream ends its capture");
}

// The second preload stands behind the doors, and the driver, being linked, behind both.
void next_of_who_stands_behind_us_is_the_driver() {
  const auto next = reinterpret_cast<void* (*)(const char*)>(::dlsym(RTLD_DEFAULT, "second_preload_next"));
  Dl_info info{};
  check(next != nullptr && ::dladdr(next("cuInit"), &info) != 0, "the second preload finds something");
  check(info.dli_fname != nullptr && std::strstr(info.dli_fname, "libcuda.so.1") != nullptr, "which is the driver's");
}

void* allocate_in_thread(void* barrier) {
  CUdeviceptr pointer = 0;
  ::pthread_barrier_wait(static_cast<pthread_barrier_t*>(barrier));
  const bool managed = cuMemAlloc_v2(&pointer, managed_size) == CUDA_SUCCESS && pointer == managed_address;
  return managed ? barrier : nullptr;
}

void first_calls_of_eight_threads_are_all_seen() {
  pthread_barrier_t barrier;
  ::pthread_barrier_init(&barrier, nullptr, 8);
  pthread_t threads[8];
  for (pthread_t& thread : threads) ::pthread_create(&thread, nullptr, &allocate_in_thread, &barrier);
  for (pthread_t thread : threads) {
    void* managed = nullptr;
    ::pthread_join(thread, &managed);
    check(managed != nullptr, "no thread slips past while another opens the door");
  }
}

void what_passes_is_told_while_somebody_records() {
  CUdeviceptr pointer = 0;
  CUmemGenericAllocationHandle handle = 0;
  check(cuMemAllocAsync(&pointer, 9, nullptr) == CUDA_SUCCESS && pointer == driver_address, "cuMemAllocAsync");
  const FakeState state;
  check(state.calls("record_alloc") == 1 && state.last("record_alloc") == 9, "told with its size");
  check(cuMemAllocAsync(&pointer, 0, nullptr) == CUDA_ERROR_OUT_OF_MEMORY, "no memory");
  check(state.calls("record_out_of_memory") == 1 && state.calls("record_alloc") == 1, "is told as that");
  check(cuMemCreate(&handle, 7, nullptr, 0) == CUDA_SUCCESS && state.last("record_alloc") == 7, "a handle");
  check(cuMemAlloc_v2(&pointer, managed_size) == CUDA_SUCCESS && pointer == managed_address, "a block of ours");
  check(cuMemFree_v2(managed_address) == CUDA_SUCCESS && state.calls("record_release") == 0, "its free");
  check(state.calls("record_alloc") == 2, "is told by who answers");
  check(cuMemAlloc_v2(&pointer, 5) == CUDA_SUCCESS && state.last("record_alloc") == 5, "the driver's");
  state.set_recording(0);
  check(cuMemAllocAsync(&pointer, 11, nullptr) == CUDA_SUCCESS, "while nobody records");
  check(cuMemFree_v2(driver_address) == CUDA_SUCCESS, "likewise");
  check(state.calls("record_alloc") == 3 && state.calls("record_release") == 0, "nothing is told");
}

void a_free_that_fails_is_taken_back() {
  check(cuMemRelease(77) == CUDA_SUCCESS, "cuMemRelease");
  const FakeState state;
  check(state.last("record_release") == 77 && state.calls("record_alloc") == 0, "a free is told before it happens");
  check(cuMemRelease(78) == CUDA_ERROR_INVALID_VALUE, "one that fails");
  check(state.calls("record_alloc") == 1 && state.last("record_alloc") == released_size, "is told as given again");
  check(cuMemRelease(unknown_to_state) == CUDA_ERROR_INVALID_VALUE, "one of what nobody knows");
  check(state.calls("record_alloc") == 1, "is not");
}

constexpr Scenario scenarios[] = {
    {"what_passes_is_told_while_somebody_records", what_passes_is_told_while_somebody_records},
    {"a_free_that_fails_is_taken_back", a_free_that_fails_is_taken_back},
    {"first_call_keeps_its_arguments", first_call_keeps_its_arguments},
    {"works_as_if_alone", works_as_if_alone},
    {"observing_opens_nothing", observing_opens_nothing},
    {"opening_does_not_wait_for_itself", opening_does_not_wait_for_itself},
    {"managed_calls_are_answered", managed_calls_are_answered},
    {"gate_is_passed_and_left", gate_is_passed_and_left},
    {"memory_for_others_is_marked", memory_for_others_is_marked},
    {"attributes_tell_of_the_block", attributes_tell_of_the_block},
    {"contexts_and_peers_are_told", contexts_and_peers_are_told},
    {"captures_end_when_they_end", captures_end_when_they_end},
    {"next_of_who_stands_behind_us_is_the_driver", next_of_who_stands_behind_us_is_the_driver},
    {"first_calls_of_eight_threads_are_all_seen", first_calls_of_eight_threads_are_all_seen},
};

}  // namespace

int main(int argc, char** argv) { return run_scenario(scenarios, argc, argv); }
