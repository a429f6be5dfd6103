// SPDX-License-Identifier: Apache-2.0
//
// CUDA memory that is never ours: what became of it is told, and nothing else.
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"
#include "shim/preload/recorded.hpp"

namespace lowtide::preload {
namespace {

template <typename Address>
CUresult gave(CUresult result, Memory kind, const Address* address, size_t bytes, CUstream stream = nullptr) noexcept {
  return given<LOWTIDE_CUDA>(result, kind, address, bytes, stream);
}

template <typename Make>
CUresult tell(CUresult result, Make make) noexcept {
  return told<LOWTIDE_CUDA>(result, make);
}

template <Symbol release, typename Address>
CUresult take_back(Memory kind, Address address) noexcept {
  return taken_back<LOWTIDE_CUDA>(kind, address, [&] { return real<release>(address); });
}

/// What is known of opened memory is its range.
CUresult opened(CUresult result, const CUdeviceptr* pointer) noexcept {
  return tell(result, [&] {
    CUdeviceptr base = *pointer;
    size_t size = 0;
    if (real_address(static_cast<std::size_t>(Symbol::cuMemGetAddressRange_v2)) != nullptr)
      (void)real<Symbol::cuMemGetAddressRange_v2>(&base, &size, *pointer);
    return record_of(Op::ipc_open, Memory::driver, *pointer, size);
  });
}

std::uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels = 1) noexcept {
  return array_bytes(array.Width, array.Height, array.Depth, channel_bytes(array.Format) * array.NumChannels, levels);
}

}  // namespace

CUresult hook_cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return gave(real<Symbol::cuMemAllocAsync>(pointer, bytes, stream), Memory::async, pointer, bytes, stream);
}

CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return gave(real<Symbol::cuMemAllocAsync_ptsz>(pointer, bytes, stream), Memory::async, pointer, bytes,
              per_thread(stream));
}

CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return gave(real<Symbol::cuMemAllocFromPoolAsync>(pointer, bytes, pool, stream), Memory::pool, pointer, bytes,
              stream);
}

CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return gave(real<Symbol::cuMemAllocFromPoolAsync_ptsz>(pointer, bytes, pool, stream), Memory::pool, pointer, bytes,
              per_thread(stream));
}

CUresult hook_cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int flags) {
  return gave(real<Symbol::cuMemAllocManaged>(pointer, bytes, flags), Memory::managed, pointer, bytes);
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                          unsigned long long flags) {
  const CUresult result = real<Symbol::cuMemCreate>(handle, bytes, properties, flags);
  const bool on_device = properties == nullptr || properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return given<LOWTIDE_CUDA>(result, on_device ? Memory::handle : Memory::host_pinned, handle, bytes, nullptr,
                             properties == nullptr || !on_device ? -1 : properties->location.id);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
  return take_back<Symbol::cuMemRelease>(Memory::handle, handle);
}

CUresult hook_cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  return tell(real<Symbol::cuMemMap>(address, size, offset, handle, flags),
              [&] { return record_of(Op::map, Memory::handle, address, size, handle); });
}

CUresult hook_cuMemUnmap(CUdeviceptr address, size_t size) {
  return tell(real<Symbol::cuMemUnmap>(address, size),
              [&] { return record_of(Op::unmap, Memory::handle, address, size); });
}

CUresult hook_cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags) {
  return tell(real<Symbol::cuMemExportToShareableHandle>(shareable, handle, type, flags),
              [&] { return record_of(Op::ipc_export, Memory::handle, handle); });
}

CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                             CUmemAllocationHandleType type) {
  return tell(real<Symbol::cuMemImportFromShareableHandle>(handle, shareable, type),
              [&] { return record_of(Op::ipc_open, Memory::handle, *handle); });
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return opened(real<Symbol::cuIpcOpenMemHandle>(pointer, handle, flags), pointer);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return opened(real<Symbol::cuIpcOpenMemHandle_v2>(pointer, handle, flags), pointer);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr address) {
  return tell(real<Symbol::cuIpcCloseMemHandle>(address),
              [&] { return record_of(Op::ipc_close, Memory::driver, address); });
}

CUresult hook_cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return gave(real<Symbol::cuMemHostAlloc>(pointer, bytes, flags), Memory::host_pinned, pointer, bytes);
}

CUresult hook_cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return gave(real<Symbol::cuMemAllocHost_v2>(pointer, bytes), Memory::host_pinned, pointer, bytes);
}

CUresult hook_cuMemFreeHost(void* pointer) { return take_back<Symbol::cuMemFreeHost>(Memory::host_pinned, pointer); }

CUresult hook_cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
  return gave(real<Symbol::cuMemHostRegister_v2>(pointer, bytes, flags), Memory::host_registered, &pointer, bytes);
}

CUresult hook_cuMemHostUnregister(void* pointer) {
  return take_back<Symbol::cuMemHostUnregister>(Memory::host_registered, pointer);
}

CUresult hook_cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* what) {
  const CUresult result = real<Symbol::cuArrayCreate_v2>(array, what);
  const CUDA_ARRAY3D_DESCRIPTOR whole =
      what == nullptr ? CUDA_ARRAY3D_DESCRIPTOR{}
                      : CUDA_ARRAY3D_DESCRIPTOR{what->Width, what->Height, 1, what->Format, what->NumChannels, 0};
  return gave(result, Memory::array, array, bytes_of(whole));
}

CUresult hook_cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* what) {
  const CUresult result = real<Symbol::cuArray3DCreate_v2>(array, what);
  return gave(result, Memory::array, array, what == nullptr ? 0 : bytes_of(*what));
}

CUresult hook_cuArrayDestroy(CUarray array) { return take_back<Symbol::cuArrayDestroy>(Memory::array, array); }

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* what,
                                     unsigned int levels) {
  const CUresult result = real<Symbol::cuMipmappedArrayCreate>(array, what, levels);
  return gave(result, Memory::array, array, what == nullptr ? 0 : bytes_of(*what, levels));
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return take_back<Symbol::cuMipmappedArrayDestroy>(Memory::array, array);
}

}  // namespace lowtide::preload
