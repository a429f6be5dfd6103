/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of HIP that the doors hook or ask, with the vendor's signatures. A test compiles them beside the
 * vendor's own header, where that is installed: one that differs from it does not compile. A pointer to a type that
 * came after HIP 5.2 is a pointer to void here, and a later enumeration an int: a hook only hands them on.
 */
#ifndef LOWTIDE_SHIM_PRELOAD_HIP_FUNCTIONS_H
#define LOWTIDE_SHIM_PRELOAD_HIP_FUNCTIONS_H

#include "backends/hip/hip_declarations.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Start, devices, memory. */
hipError_t hipInit(unsigned);
hipError_t hipGetDeviceCount(int*);
hipError_t hipGetDevice(int*);
hipError_t hipRuntimeGetVersion(int*);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
hipError_t hipDeviceReset(void);
hipError_t hipDeviceEnablePeerAccess(int, unsigned);
hipError_t hipDeviceDisablePeerAccess(int);
hipError_t hipMalloc(void**, size_t);
hipError_t hipExtMallocWithFlags(void**, size_t, unsigned);
hipError_t hipMallocPitch(void**, size_t*, size_t, size_t);
hipError_t hipMemAllocPitch(hipDeviceptr_t*, size_t*, size_t, size_t, unsigned);
hipError_t hipMalloc3D(hipPitchedPtr*, hipExtent);
hipError_t hipFree(void*);
hipError_t hipFreeAsync(void*, hipStream_t);
hipError_t hipHostFree(void*);
hipError_t hipFreeHost(void*);
hipError_t hipMemGetAddressRange(hipDeviceptr_t*, size_t*, hipDeviceptr_t);
hipError_t hipMemPtrGetInfo(void*, size_t*);
hipError_t hipPointerGetAttribute(void*, hipPointer_attribute, hipDeviceptr_t);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t*, const void*);
hipError_t hipDrvPointerGetAttributes(unsigned, hipPointer_attribute*, void**, hipDeviceptr_t);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t*, void*);
hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t*, void*);

hipError_t hipMallocAsync(void**, size_t, hipStream_t);
hipError_t hipMallocFromPoolAsync(void**, size_t, hipMemPool_t, hipStream_t);
hipError_t hipMallocManaged(void**, size_t, unsigned);
hipError_t hipMallocHost(void**, size_t);
hipError_t hipMemAllocHost(void**, size_t);
hipError_t hipHostMalloc(void**, size_t, unsigned);
hipError_t hipHostAlloc(void**, size_t, unsigned);
hipError_t hipIpcOpenMemHandle(void**, hipIpcMemHandle_t, unsigned);
hipError_t hipIpcCloseMemHandle(void*);
hipError_t hipMallocArray(hipArray_t*, const hipChannelFormatDesc*, size_t, size_t, unsigned);
hipError_t hipMalloc3DArray(hipArray_t*, const hipChannelFormatDesc*, hipExtent, unsigned);
hipError_t hipFreeArray(hipArray_t);
hipError_t hipArrayCreate(hipArray_t*, const HIP_ARRAY_DESCRIPTOR*);
hipError_t hipArray3DCreate(hipArray_t*, const HIP_ARRAY3D_DESCRIPTOR*);
hipError_t hipArrayDestroy(hipArray_t);
hipError_t hipMallocMipmappedArray(hipMipmappedArray_t*, const hipChannelFormatDesc*, hipExtent, unsigned, unsigned);
hipError_t hipFreeMipmappedArray(hipMipmappedArray_t);
hipError_t hipMipmappedArrayCreate(hipMipmappedArray_t*, HIP_ARRAY3D_DESCRIPTOR*, unsigned);
hipError_t hipMipmappedArrayDestroy(hipMipmappedArray_t);

/* Captures. */
hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t*);
hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus*);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamBeginCapture_spt(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture_spt(hipStream_t, hipGraph_t*);
hipError_t hipStreamIsCapturing_spt(hipStream_t, hipStreamCaptureStatus*);

/* Launches. */
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t hipLaunchKernel_spt(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t hipExtLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t, hipEvent_t, hipEvent_t, int);
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 hipStream_t, void**, void**);
hipError_t hipLaunchCooperativeKernel(const void*, dim3, dim3, void**, unsigned, hipStream_t);
hipError_t hipLaunchCooperativeKernel_spt(const void*, dim3, dim3, void**, uint32_t, hipStream_t);
hipError_t hipLaunchCooperativeKernelMultiDevice(hipLaunchParams*, int, unsigned);
hipError_t hipExtLaunchMultiKernelMultiDevice(hipLaunchParams*, int, unsigned);
hipError_t hipLaunchByPtr(const void*);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);
hipError_t hipGraphLaunch_spt(hipGraphExec_t, hipStream_t);

/* Copies. */
hipError_t hipMemcpy(void*, const void*, size_t, hipMemcpyKind);
hipError_t hipMemcpy_spt(void*, const void*, size_t, hipMemcpyKind);
hipError_t hipMemcpyWithStream(void*, const void*, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyAsync(void*, const void*, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyAsync_spt(void*, const void*, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyHtoD(hipDeviceptr_t, void*, size_t);
hipError_t hipMemcpyDtoH(void*, hipDeviceptr_t, size_t);
hipError_t hipMemcpyDtoD(hipDeviceptr_t, hipDeviceptr_t, size_t);
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t, void*, size_t, hipStream_t);
hipError_t hipMemcpyDtoHAsync(void*, hipDeviceptr_t, size_t, hipStream_t);
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t, hipDeviceptr_t, size_t, hipStream_t);
hipError_t hipMemcpyAtoH(void*, hipArray_t, size_t, size_t);
hipError_t hipMemcpyHtoA(hipArray_t, size_t, const void*, size_t);
hipError_t hipMemcpyToSymbol(const void*, const void*, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyToSymbol_spt(const void*, const void*, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyToSymbolAsync(const void*, const void*, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyToSymbolAsync_spt(const void*, const void*, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyFromSymbol(void*, const void*, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromSymbol_spt(void*, const void*, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromSymbolAsync(void*, const void*, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyFromSymbolAsync_spt(void*, const void*, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpy2D(void*, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2D_spt(void*, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpy2DAsync_spt(void*, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpy2DToArray(hipArray_t, size_t, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DToArray_spt(hipArray_t, size_t, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DToArrayAsync(hipArray_t, size_t, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind,
                                   hipStream_t);
hipError_t hipMemcpy2DToArrayAsync_spt(hipArray_t, size_t, size_t, const void*, size_t, size_t, size_t, hipMemcpyKind,
                                       hipStream_t);
hipError_t hipMemcpy2DFromArray(void*, size_t, hipArray_const_t, size_t, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DFromArray_spt(void*, size_t, hipArray_const_t, size_t, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DFromArrayAsync(void*, size_t, hipArray_const_t, size_t, size_t, size_t, size_t, hipMemcpyKind,
                                     hipStream_t);
hipError_t hipMemcpy2DFromArrayAsync_spt(void*, size_t, hipArray_const_t, size_t, size_t, size_t, size_t, hipMemcpyKind,
                                         hipStream_t);
hipError_t hipMemcpyToArray(hipArray_t, size_t, size_t, const void*, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromArray(void*, hipArray_const_t, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyFromArray_spt(void*, hipArray_const_t, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpyParam2D(const hip_Memcpy2D*);
hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D*, hipStream_t);
hipError_t hipDrvMemcpy2DUnaligned(const hip_Memcpy2D*);
hipError_t hipMemcpy3D(const hipMemcpy3DParms*);
hipError_t hipMemcpy3D_spt(const hipMemcpy3DParms*);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms*, hipStream_t);
hipError_t hipMemcpy3DAsync_spt(const hipMemcpy3DParms*, hipStream_t);
hipError_t hipDrvMemcpy3D(const HIP_MEMCPY3D*);
hipError_t hipDrvMemcpy3DAsync(const HIP_MEMCPY3D*, hipStream_t);
hipError_t hipMemcpyPeer(void*, int, const void*, int, size_t);
hipError_t hipMemcpyPeerAsync(void*, int, const void*, int, size_t, hipStream_t);

/* Memsets. */
hipError_t hipMemset(void*, int, size_t);
hipError_t hipMemset_spt(void*, int, size_t);
hipError_t hipMemsetAsync(void*, int, size_t, hipStream_t);
hipError_t hipMemsetAsync_spt(void*, int, size_t, hipStream_t);
hipError_t hipMemsetD8(hipDeviceptr_t, unsigned char, size_t);
hipError_t hipMemsetD8Async(hipDeviceptr_t, unsigned char, size_t, hipStream_t);
hipError_t hipMemsetD16(hipDeviceptr_t, unsigned short, size_t);
hipError_t hipMemsetD16Async(hipDeviceptr_t, unsigned short, size_t, hipStream_t);
hipError_t hipMemsetD32(hipDeviceptr_t, int, size_t);
hipError_t hipMemsetD32Async(hipDeviceptr_t, int, size_t, hipStream_t);
hipError_t hipMemset2D(void*, size_t, int, size_t, size_t);
hipError_t hipMemset2D_spt(void*, size_t, int, size_t, size_t);
hipError_t hipMemset2DAsync(void*, size_t, int, size_t, size_t, hipStream_t);
hipError_t hipMemset2DAsync_spt(void*, size_t, int, size_t, size_t, hipStream_t);
hipError_t hipMemset3D(hipPitchedPtr, int, hipExtent);
hipError_t hipMemset3D_spt(hipPitchedPtr, int, hipExtent);
hipError_t hipMemset3DAsync(hipPitchedPtr, int, hipExtent, hipStream_t);
hipError_t hipMemset3DAsync_spt(hipPitchedPtr, int, hipExtent, hipStream_t);

/* Stream memory operations. */
hipError_t hipStreamWaitValue32(hipStream_t, void*, uint32_t, unsigned, uint32_t);
hipError_t hipStreamWaitValue64(hipStream_t, void*, uint64_t, unsigned, uint64_t);
hipError_t hipStreamWriteValue32(hipStream_t, void*, uint32_t, unsigned);
hipError_t hipStreamWriteValue64(hipStream_t, void*, uint64_t, unsigned);

/* Later than 5.2. */
hipError_t hipGetProcAddress(const char*, void**, int, uint64_t, void*);
hipError_t hipGetDriverEntryPoint(const char*, void**, unsigned long long, void*);
hipError_t hipGetDriverEntryPoint_spt(const char*, void**, unsigned long long, void*);
hipError_t hipMemGetHandleForAddressRange(void*, hipDeviceptr_t, size_t, int, unsigned long long);
hipError_t hipStreamBeginCaptureToGraph(hipStream_t, hipGraph_t, const hipGraphNode_t*, const void*, size_t,
                                        hipStreamCaptureMode);
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                            unsigned, hipStream_t, void**);
hipError_t hipModuleLaunchCooperativeKernelMultiDevice(void*, unsigned, unsigned);
hipError_t hipLaunchKernelExC(const void*, const void*, void**);
hipError_t hipDrvLaunchKernelEx(const void*, hipFunction_t, void**, void**);
hipError_t hipMemcpyAtoD(hipDeviceptr_t, hipArray_t, size_t, size_t);
hipError_t hipMemcpyDtoA(hipArray_t, size_t, hipDeviceptr_t, size_t);
hipError_t hipMemcpyAtoA(hipArray_t, size_t, hipArray_t, size_t, size_t);
hipError_t hipMemcpyAtoHAsync(void*, hipArray_t, size_t, size_t, hipStream_t);
hipError_t hipMemcpyHtoAAsync(hipArray_t, size_t, const void*, size_t, hipStream_t);
hipError_t hipMemcpy2DArrayToArray(hipArray_t, size_t, size_t, hipArray_const_t, size_t, size_t, size_t, size_t,
                                   hipMemcpyKind);
hipError_t hipMemcpy3DPeer(void*);
hipError_t hipMemcpy3DPeerAsync(void*, hipStream_t);
hipError_t hipMemcpyBatchAsync(void**, void**, size_t*, size_t, void*, size_t*, size_t, size_t*, hipStream_t);
hipError_t hipMemcpy3DBatchAsync(size_t, void*, size_t*, unsigned long long, hipStream_t);
hipError_t hipStreamBatchMemOp(hipStream_t, unsigned, void*, unsigned);
hipError_t hipMemsetD2D8(hipDeviceptr_t, size_t, unsigned char, size_t, size_t);
hipError_t hipMemsetD2D8Async(hipDeviceptr_t, size_t, unsigned char, size_t, size_t, hipStream_t);
hipError_t hipMemsetD2D16(hipDeviceptr_t, size_t, unsigned short, size_t, size_t);
hipError_t hipMemsetD2D16Async(hipDeviceptr_t, size_t, unsigned short, size_t, size_t, hipStream_t);
hipError_t hipMemsetD2D32(hipDeviceptr_t, size_t, unsigned, size_t, size_t);
hipError_t hipMemsetD2D32Async(hipDeviceptr_t, size_t, unsigned, size_t, size_t, hipStream_t);

/* A C++ function until some release made it a C function: its two names, and the one that it replaced. */
hipError_t hipExtModuleLaunchKernel(hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t,
                                    hipStream_t, void**, void**, hipEvent_t, hipEvent_t, uint32_t);
hipError_t _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
    hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void**, void**,
    hipEvent_t, hipEvent_t, uint32_t);
hipError_t _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_(
    hipFunction_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, size_t, hipStream_t, void**, void**,
    hipEvent_t, hipEvent_t);

#ifdef __cplusplus
}
#endif
#endif
