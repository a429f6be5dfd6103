// SPDX-License-Identifier: Apache-2.0
//
// HIP: allocate, free, what is asked about an address, and memory that goes to others.
#include <cstring>

#include "shim/preload/door.hpp"
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"
#include "shim/preload/recorded.hpp"

namespace lowtide::preload {
namespace {

std::uint64_t address_of(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }
void* pointer_to(std::uint64_t address) noexcept { return reinterpret_cast<void*>(address); }

/// A call of Lowtide's own that fails on this thread, as those that try a device out may, must not be what the
/// program's hipGetLastError finds.
class LastError {
 public:
  LastError() noexcept : clean_(real<Symbol::hipPeekAtLastError>() == hipSuccess) {}
  LastError(const LastError&) = delete;
  LastError& operator=(const LastError&) = delete;
  ~LastError() {
    if (clean_) (void)real<Symbol::hipGetLastError>();
  }

 private:
  const bool clean_;
};

int allocate_block(std::uint64_t* address, size_t bytes, int* result) noexcept {
  const LastError kept;
  return door(LOWTIDE_HIP).allocate(address, bytes, result);
}

int allocate_rows(std::uint64_t* address, size_t* row, size_t width, size_t height, unsigned element,
                  int* result) noexcept {
  const LastError kept;
  return door(LOWTIDE_HIP).allocate_pitch(address, row, width, height, element, result);
}

int free_block(void* pointer, int stream_ordered, hipStream_t stream, int* result) noexcept {
  const LastError kept;
  return door(LOWTIDE_HIP).free(address_of(pointer), stream_ordered, stream, result);
}

template <typename GoOn>
hipError_t allocate(void** pointer, size_t bytes, GoOn go_on) noexcept {
  std::uint64_t address = 0;
  int result = hipSuccess;
  if (pointer == nullptr || allocate_block(&address, bytes, &result) == LOWTIDE_PASS) {
    return given<LOWTIDE_HIP>(go_on(), Memory::runtime, pointer, bytes);
  }
  if (result == hipSuccess) *pointer = pointer_to(address);
  return static_cast<hipError_t>(result);
}

template <typename GoOn>
hipError_t allocate_pitch(void** pointer, size_t* pitch, size_t width, size_t height, unsigned element,
                          GoOn go_on) noexcept {
  std::uint64_t address = 0;
  size_t row = 0;
  int result = hipSuccess;
  if (pointer == nullptr || pitch == nullptr ||
      allocate_rows(&address, &row, width, height, element, &result) == LOWTIDE_PASS) {
    const hipError_t plainly = go_on();
    return given<LOWTIDE_HIP>(plainly, Memory::runtime, pointer, (plainly == hipSuccess ? *pitch : width) * height);
  }
  if (result == hipSuccess) {
    *pointer = pointer_to(address);
    *pitch = row;
  }
  return static_cast<hipError_t>(result);
}

template <typename GoOn>
hipError_t release(void* pointer, int stream_ordered, hipStream_t stream, GoOn go_on) noexcept {
  int result = hipSuccess;
  const int who = free_block(pointer, stream_ordered, stream, &result);
  if (who == LOWTIDE_DONE) return static_cast<hipError_t>(result);
  return taken_back<LOWTIDE_HIP>(Memory::runtime, pointer, go_on);
}

/// For every call without an element's size.
constexpr unsigned any_element = 4;

/// hipMemoryType of device memory, which has another number since 6.0.
int device_memory_type() noexcept {
  int version = 0;
  const bool known = real_address(static_cast<std::size_t>(Symbol::hipRuntimeGetVersion)) != nullptr &&
                     real<Symbol::hipRuntimeGetVersion>(&version) == hipSuccess;
  return known && version < 60000000 ? 1 : 2;
}

template <typename Value>
bool write(void* data, Value value) noexcept {
  std::memcpy(data, &value, sizeof value);
  return true;
}

/// What memory of hipMalloc gets, whether the block is resident or parked: the runtime knows nothing of a parked one,
/// and a resident one as part of an extent.
bool answer(const lowtide_block_view& block, hipPointer_attribute attribute, void* address, void* data) noexcept {
  switch (attribute) {
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: return write(data, device_memory_type());
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: return write(data, address);
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
    case HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE: return write(data, 0);
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return write(data, block.device);
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: return write(data, pointer_to(block.address));
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
      return write(data, static_cast<std::uint32_t>(block.size));  // as the runtime does
    case HIP_POINTER_ATTRIBUTE_MAPPED: return write(data, 1);
    default: return false;
  }
}

}  // namespace

hipError_t hook_hipMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, [&] { return real<Symbol::hipMalloc>(pointer, bytes); });
}

hipError_t hook_hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned flags) {
  const auto plainly = [&] { return real<Symbol::hipExtMallocWithFlags>(pointer, bytes, flags); };
  // Every other kind is shared with the host or with hardware in ways that other memory is not.
  constexpr unsigned ordinary = 0;
  if (flags == ordinary) return allocate(pointer, bytes, plainly);
  return given<LOWTIDE_HIP>(plainly(), Memory::runtime, pointer, bytes);
}

hipError_t hook_hipMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return allocate_pitch(pointer, pitch, width, height, any_element,
                        [&] { return real<Symbol::hipMallocPitch>(pointer, pitch, width, height); });
}

hipError_t hook_hipMemAllocPitch(hipDeviceptr_t* pointer, size_t* pitch, size_t width, size_t height,
                                 unsigned element) {
  return allocate_pitch(pointer, pitch, width, height, element,
                        [&] { return real<Symbol::hipMemAllocPitch>(pointer, pitch, width, height, element); });
}

hipError_t hook_hipMalloc3D(hipPitchedPtr* memory, hipExtent extent) {
  const auto plainly = [&] { return real<Symbol::hipMalloc3D>(memory, extent); };
  size_t rows = 0;
  if (memory == nullptr || __builtin_mul_overflow(extent.height, extent.depth, &rows)) return plainly();
  hipPitchedPtr made{nullptr, 0, extent.width, extent.height};
  bool passed = false;
  const hipError_t result = allocate_pitch(&made.ptr, &made.pitch, extent.width, rows, any_element, [&] {
    passed = true;
    const hipError_t answer = plainly();
    if (answer == hipSuccess) made = *memory;
    return answer;
  });
  if (!passed && result == hipSuccess) *memory = made;
  return result;
}

hipError_t hook_hipFree(void* pointer) {
  return release(pointer, 0, nullptr, [&] { return real<Symbol::hipFree>(pointer); });
}

hipError_t hook_hipFreeAsync(void* pointer, hipStream_t stream) {
  return release(pointer, 1, stream, [&] { return real<Symbol::hipFreeAsync>(pointer, stream); });
}

// The runtime frees device memory by these two as well.
hipError_t hook_hipHostFree(void* pointer) {
  return release(pointer, 0, nullptr, [&] { return real<Symbol::hipHostFree>(pointer); });
}

hipError_t hook_hipFreeHost(void* pointer) {
  return release(pointer, 0, nullptr, [&] { return real<Symbol::hipFreeHost>(pointer); });
}

hipError_t hook_hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t address) {
  lowtide_block_view block;
  if (door(LOWTIDE_HIP).find_block(address_of(address), &block) == 0) {
    return real<Symbol::hipMemGetAddressRange>(base, size, address);
  }
  if (base != nullptr) *base = pointer_to(block.address);
  if (size != nullptr) *size = block.size;
  return hipSuccess;
}

hipError_t hook_hipMemPtrGetInfo(void* pointer, size_t* size) {
  lowtide_block_view block;
  if (size == nullptr || door(LOWTIDE_HIP).find_block(address_of(pointer), &block) == 0) {
    return real<Symbol::hipMemPtrGetInfo>(pointer, size);
  }
  *size = block.size;
  return hipSuccess;
}

hipError_t hook_hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t address) {
  lowtide_block_view block;
  if (data != nullptr && door(LOWTIDE_HIP).find_block(address_of(address), &block) != 0 &&
      answer(block, attribute, address, data)) {
    return hipSuccess;
  }
  return real<Symbol::hipPointerGetAttribute>(data, attribute, address);
}

hipError_t hook_hipDrvPointerGetAttributes(unsigned count, hipPointer_attribute* attributes, void** data,
                                           hipDeviceptr_t address) {
  const hipError_t result = real<Symbol::hipDrvPointerGetAttributes>(count, attributes, data, address);
  lowtide_block_view block;
  if (attributes == nullptr || data == nullptr || door(LOWTIDE_HIP).find_block(address_of(address), &block) == 0) {
    return result;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] != nullptr) answer(block, attributes[i], address, data[i]);
  }
  return hipSuccess;
}

hipError_t hook_hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  lowtide_block_view block;
  if (attributes == nullptr || door(LOWTIDE_HIP).find_block(address_of(pointer), &block) == 0) {
    return real<Symbol::hipPointerGetAttributes>(attributes, pointer);
  }
  *attributes = {device_memory_type(), block.device, const_cast<void*>(pointer), nullptr, 0, 0};
  return hipSuccess;
}

hipError_t hook_hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* pointer) {
  const auto& state = door(LOWTIDE_HIP);
  lowtide_block_view block;
  const bool ours = state.find_block(address_of(pointer), &block) != 0;
  if (ours && (block.plain == 0 || block.alone == 0)) {
    return static_cast<hipError_t>(state.refuse_ipc(address_of(pointer)));
  }
  const hipError_t result = real<Symbol::hipIpcGetMemHandle>(handle, pointer);
  if (result == hipSuccess) state.mark_shared(address_of(pointer), "hipIpcGetMemHandle");
  return told<LOWTIDE_HIP>(result, [&] { return record_of(Op::ipc_export, Memory::runtime, address_of(pointer)); });
}

hipError_t hook_hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t* handle, void* pointer) {
  const auto& state = door(LOWTIDE_HIP);
  // As in CUDA: who gets a handle takes it for the block's own.
  lowtide_block_view block;
  const bool ours = state.find_block(address_of(pointer), &block) != 0;
  if (ours && block.alone == 0) return hipErrorInvalidValue;
  const hipError_t result = real<Symbol::hipMemRetainAllocationHandle>(handle, pointer);
  if (result == hipSuccess) state.mark_shared(address_of(pointer), "hipMemRetainAllocationHandle");
  return told<LOWTIDE_HIP>(result, [&] { return record_of(Op::alloc, Memory::handle, number_of(*handle)); });
}

hipError_t hook_hipMemGetHandleForAddressRange(void* handle, hipDeviceptr_t address, size_t size, int type,
                                               unsigned long long flags) {
  const hipError_t result = real<Symbol::hipMemGetHandleForAddressRange>(handle, address, size, type, flags);
  if (result == hipSuccess) {
    door(LOWTIDE_HIP).mark_shared(address_of(address), "hipMemGetHandleForAddressRange");
  }
  return result;
}

}  // namespace lowtide::preload
