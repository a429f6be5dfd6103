// SPDX-License-Identifier: Apache-2.0
//
// HIP memory that is never ours: what became of it is told, and nothing else.
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"
#include "shim/preload/recorded.hpp"

namespace lowtide::preload {
namespace {

template <typename Address>
hipError_t gave(hipError_t result, Memory kind, const Address* address, size_t bytes,
                hipStream_t stream = nullptr) noexcept {
  return given<LOWTIDE_HIP>(result, kind, address, bytes, stream);
}

template <typename Make>
hipError_t tell(hipError_t result, Make make) noexcept {
  return told<LOWTIDE_HIP>(result, make);
}

template <Symbol release, typename Address>
hipError_t take_back(Memory kind, Address address) noexcept {
  return taken_back<LOWTIDE_HIP>(kind, address, [&] { return real<release>(address); });
}

std::uint64_t bytes_of(const hipChannelFormatDesc* channels, const hipExtent& extent, unsigned levels = 1) noexcept {
  if (channels == nullptr) return 0;
  const int bits = channels->x + channels->y + channels->z + channels->w;
  return array_bytes(extent.width, extent.height, extent.depth, static_cast<unsigned>(bits) / 8, levels);
}

std::uint64_t bytes_of(const HIP_ARRAY3D_DESCRIPTOR* array, unsigned levels = 1) noexcept {
  if (array == nullptr) return 0;
  return array_bytes(array->Width, array->Height, array->Depth, channel_bytes(array->Format) * array->NumChannels,
                     levels);
}

}  // namespace

hipError_t hook_hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream) {
  return gave(real<Symbol::hipMallocAsync>(pointer, bytes, stream), Memory::async, pointer, bytes, stream);
}

hipError_t hook_hipMallocFromPoolAsync(void** pointer, size_t bytes, hipMemPool_t pool, hipStream_t stream) {
  return gave(real<Symbol::hipMallocFromPoolAsync>(pointer, bytes, pool, stream), Memory::pool, pointer, bytes, stream);
}

hipError_t hook_hipMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return gave(real<Symbol::hipMallocManaged>(pointer, bytes, flags), Memory::managed, pointer, bytes);
}

hipError_t hook_hipMallocHost(void** pointer, size_t bytes) {
  return gave(real<Symbol::hipMallocHost>(pointer, bytes), Memory::host_pinned, pointer, bytes);
}

hipError_t hook_hipMemAllocHost(void** pointer, size_t bytes) {
  return gave(real<Symbol::hipMemAllocHost>(pointer, bytes), Memory::host_pinned, pointer, bytes);
}

hipError_t hook_hipHostMalloc(void** pointer, size_t bytes, unsigned flags) {
  return gave(real<Symbol::hipHostMalloc>(pointer, bytes, flags), Memory::host_pinned, pointer, bytes);
}

hipError_t hook_hipHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return gave(real<Symbol::hipHostAlloc>(pointer, bytes, flags), Memory::host_pinned, pointer, bytes);
}

hipError_t hook_hipHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return gave(real<Symbol::hipHostRegister>(pointer, bytes, flags), Memory::host_registered, &pointer, bytes);
}

hipError_t hook_hipHostUnregister(void* pointer) {
  return take_back<Symbol::hipHostUnregister>(Memory::host_registered, pointer);
}

hipError_t hook_hipMemCreate(hipMemGenericAllocationHandle_t* handle, size_t bytes,
                             const hipMemAllocationProp* properties, unsigned long long flags) {
  const hipError_t result = real<Symbol::hipMemCreate>(handle, bytes, properties, flags);
  return given<LOWTIDE_HIP>(result, Memory::handle, handle, bytes, nullptr,
                            properties == nullptr ? -1 : properties->location.id);
}

hipError_t hook_hipMemRelease(hipMemGenericAllocationHandle_t handle) {
  return take_back<Symbol::hipMemRelease>(Memory::handle, handle);
}

hipError_t hook_hipMemMap(void* pointer, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                          unsigned long long flags) {
  return tell(real<Symbol::hipMemMap>(pointer, size, offset, handle, flags),
              [&] { return record_of(Op::map, Memory::handle, number_of(pointer), size, number_of(handle)); });
}

hipError_t hook_hipMemUnmap(void* pointer, size_t size) {
  return tell(real<Symbol::hipMemUnmap>(pointer, size),
              [&] { return record_of(Op::unmap, Memory::handle, number_of(pointer), size); });
}

hipError_t hook_hipMemExportToShareableHandle(void* shareable, hipMemGenericAllocationHandle_t handle,
                                              hipMemAllocationHandleType type, unsigned long long flags) {
  return tell(real<Symbol::hipMemExportToShareableHandle>(shareable, handle, type, flags),
              [&] { return record_of(Op::ipc_export, Memory::handle, number_of(handle)); });
}

hipError_t hook_hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t* handle, void* shareable,
                                                hipMemAllocationHandleType type) {
  return tell(real<Symbol::hipMemImportFromShareableHandle>(handle, shareable, type),
              [&] { return record_of(Op::ipc_open, Memory::handle, number_of(*handle)); });
}

hipError_t hook_hipIpcOpenMemHandle(void** pointer, hipIpcMemHandle_t handle, unsigned flags) {
  return tell(real<Symbol::hipIpcOpenMemHandle>(pointer, handle, flags),
              [&] { return record_of(Op::ipc_open, Memory::runtime, number_of(*pointer)); });
}

hipError_t hook_hipIpcCloseMemHandle(void* pointer) {
  return tell(real<Symbol::hipIpcCloseMemHandle>(pointer),
              [&] { return record_of(Op::ipc_close, Memory::runtime, number_of(pointer)); });
}

hipError_t hook_hipMallocArray(hipArray_t* array, const hipChannelFormatDesc* channels, size_t width, size_t height,
                               unsigned flags) {
  const hipError_t result = real<Symbol::hipMallocArray>(array, channels, width, height, flags);
  return gave(result, Memory::array, array, bytes_of(channels, {width, height, 1}));
}

hipError_t hook_hipMalloc3DArray(hipArray_t* array, const hipChannelFormatDesc* channels, hipExtent extent,
                                 unsigned flags) {
  const hipError_t result = real<Symbol::hipMalloc3DArray>(array, channels, extent, flags);
  return gave(result, Memory::array, array, bytes_of(channels, extent));
}

hipError_t hook_hipFreeArray(hipArray_t array) { return take_back<Symbol::hipFreeArray>(Memory::array, array); }

hipError_t hook_hipArrayCreate(hipArray_t* array, const HIP_ARRAY_DESCRIPTOR* what) {
  const hipError_t result = real<Symbol::hipArrayCreate>(array, what);
  if (what == nullptr) return result;
  const HIP_ARRAY3D_DESCRIPTOR whole{what->Width, what->Height, 1, what->Format, what->NumChannels, 0};
  return gave(result, Memory::array, array, bytes_of(&whole));
}

hipError_t hook_hipArray3DCreate(hipArray_t* array, const HIP_ARRAY3D_DESCRIPTOR* what) {
  return gave(real<Symbol::hipArray3DCreate>(array, what), Memory::array, array, bytes_of(what));
}

hipError_t hook_hipArrayDestroy(hipArray_t array) { return take_back<Symbol::hipArrayDestroy>(Memory::array, array); }

hipError_t hook_hipMallocMipmappedArray(hipMipmappedArray_t* array, const hipChannelFormatDesc* channels,
                                        hipExtent extent, unsigned levels, unsigned flags) {
  const hipError_t result = real<Symbol::hipMallocMipmappedArray>(array, channels, extent, levels, flags);
  return gave(result, Memory::array, array, bytes_of(channels, extent, levels));
}

hipError_t hook_hipFreeMipmappedArray(hipMipmappedArray_t array) {
  return take_back<Symbol::hipFreeMipmappedArray>(Memory::array, array);
}

hipError_t hook_hipMipmappedArrayCreate(hipMipmappedArray_t* array, HIP_ARRAY3D_DESCRIPTOR* what, unsigned levels) {
  const hipError_t result = real<Symbol::hipMipmappedArrayCreate>(array, what, levels);
  return gave(result, Memory::array, array, bytes_of(what, levels));
}

hipError_t hook_hipMipmappedArrayDestroy(hipMipmappedArray_t array) {
  return take_back<Symbol::hipMipmappedArrayDestroy>(Memory::array, array);
}

}  // namespace lowtide::preload
