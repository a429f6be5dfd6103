// SPDX-License-Identifier: Apache-2.0
//
// Allocate, free, and memory that goes to others.
#include "shim/preload/door.hpp"
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"
#include "shim/preload/recorded.hpp"

namespace lowtide::preload {
namespace {

CUresult marked(CUresult result, CUdeviceptr address, const char* how) noexcept {
  if (result == CUDA_SUCCESS) door(LOWTIDE_CUDA).mark_shared(address, how);
  return result;
}

}  // namespace

CUresult hook_cuInit(unsigned int flags) {
  int result = CUDA_SUCCESS;
  if (door(LOWTIDE_CUDA).init(&result) == LOWTIDE_DONE) return static_cast<CUresult>(result);
  return real<Symbol::cuInit>(flags);
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  uint64_t address = 0;
  int result = CUDA_SUCCESS;
  if (pointer == nullptr || door(LOWTIDE_CUDA).allocate(&address, bytes, &result) == LOWTIDE_PASS) {
    return given<LOWTIDE_CUDA>(real<Symbol::cuMemAlloc_v2>(pointer, bytes), Memory::driver, pointer, bytes);
  }
  if (result == CUDA_SUCCESS) *pointer = address;
  return static_cast<CUresult>(result);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                                 unsigned int element) {
  uint64_t address = 0;
  size_t row = 0;
  int result = CUDA_SUCCESS;
  if (pointer == nullptr || pitch == nullptr ||
      door(LOWTIDE_CUDA).allocate_pitch(&address, &row, width, height, element, &result) == LOWTIDE_PASS) {
    const CUresult plainly = real<Symbol::cuMemAllocPitch_v2>(pointer, pitch, width, height, element);
    return given<LOWTIDE_CUDA>(plainly, Memory::driver, pointer, (plainly == CUDA_SUCCESS ? *pitch : width) * height);
  }
  if (result == CUDA_SUCCESS) {
    *pointer = address;
    *pitch = row;
  }
  return static_cast<CUresult>(result);
}

CUresult hook_cuMemFree_v2(CUdeviceptr address) {
  int result = CUDA_SUCCESS;
  if (door(LOWTIDE_CUDA).free(address, 0, nullptr, &result) == LOWTIDE_DONE) return static_cast<CUresult>(result);
  return taken_back<LOWTIDE_CUDA>(Memory::driver, address, [&] { return real<Symbol::cuMemFree_v2>(address); });
}

CUresult hook_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  int result = CUDA_SUCCESS;
  if (door(LOWTIDE_CUDA).free(address, 1, stream, &result) == LOWTIDE_DONE) return static_cast<CUresult>(result);
  return taken_back<LOWTIDE_CUDA>(Memory::async, address,
                                  [&] { return real<Symbol::cuMemFreeAsync>(address, stream); });
}

CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  int result = CUDA_SUCCESS;
  if (door(LOWTIDE_CUDA).free(address, 1, per_thread(stream), &result) == LOWTIDE_DONE)
    return static_cast<CUresult>(result);
  return taken_back<LOWTIDE_CUDA>(Memory::async, address,
                                  [&] { return real<Symbol::cuMemFreeAsync_ptsz>(address, stream); });
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const auto& state = door(LOWTIDE_CUDA);
  lowtide_block_view block;
  const bool ours = state.find_block(address, &block) != 0;
  if (ours && (block.plain == 0 || block.alone == 0)) return static_cast<CUresult>(state.refuse_ipc(address));
  const CUresult result = marked(real<Symbol::cuIpcGetMemHandle>(handle, address), address, "cuIpcGetMemHandle");
  return told<LOWTIDE_CUDA>(result, [&] { return record_of(Op::ipc_export, Memory::driver, address); });
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  // Who gets a handle takes it for the block's, from its first byte to its last. Otherwise the answer is the one that
  // the plain memory of a cuMemAlloc gets.
  lowtide_block_view block;
  if (door(LOWTIDE_CUDA).find_block(reinterpret_cast<CUdeviceptr>(pointer), &block) != 0 && block.alone == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = marked(real<Symbol::cuMemRetainAllocationHandle>(handle, pointer),
                                 reinterpret_cast<CUdeviceptr>(pointer), "cuMemRetainAllocationHandle");
  return told<LOWTIDE_CUDA>(result, [&] { return record_of(Op::alloc, Memory::handle, *handle); });
}

CUresult hook_cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
                                            unsigned long long flags) {
  return marked(real<Symbol::cuMemGetHandleForAddressRange>(handle, address, size, type, flags), address,
                "cuMemGetHandleForAddressRange");
}

CUresult hook_cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address,
                                  size_t size, unsigned long long flags) {
  return marked(real<Symbol::cuMulticastBindAddr>(multicast, offset, address, size, flags), address,
                "cuMulticastBindAddr");
}

}  // namespace lowtide::preload
