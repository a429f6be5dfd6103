// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <string>

#include "allocator/include/lowtide/lowtide.h"

namespace hazards {

/// The driver's functions and the C API, looked up at run time: the program links neither, like the programs it stands
/// for. The driver's addresses come from dlsym, so under the preload they are those of the doors.
struct Driver {
  decltype(&::cuInit) init;
  decltype(&::cuDeviceGetName) device_name;
  decltype(&::cuDevicePrimaryCtxRetain) primary_context;
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice);
  decltype(&::cuCtxDestroy) destroy_context;
  decltype(&::cuCtxSetCurrent) set_context;
  decltype(&::cuCtxSynchronize) synchronize;
  decltype(&::cuMemAlloc) allocate;
  decltype(&::cuMemFree) free;
  decltype(&::cuMemGetInfo) memory_info;
  decltype(&::cuMemGetAddressRange) address_range;
  decltype(&::cuMemcpyHtoD) to_device;
  decltype(&::cuMemcpyDtoH) to_host;
  decltype(&::cuMemcpyDtoD) within;
  decltype(&::cuMemsetD8) set_bytes;
  decltype(&::cuStreamCreate) create_stream;
  decltype(&::cuStreamDestroy) destroy_stream;
  decltype(&::cuStreamSynchronize) synchronize_stream;
  decltype(&::cuStreamBeginCapture) begin_capture;
  decltype(&::cuStreamEndCapture) end_capture;
  decltype(&::cuGraphInstantiateWithFlags) instantiate;
  decltype(&::cuGraphLaunch) launch_graph;
  decltype(&::cuGraphExecDestroy) destroy_executable;
  decltype(&::cuGraphDestroy) destroy_graph;
  decltype(&::cuModuleLoadData) load_module;
  decltype(&::cuModuleGetFunction) get_function;
  decltype(&::cuLaunchKernel) launch;
  decltype(&::cuGetProcAddress) proc_address;
  decltype(&::cuGetErrorName) error_name;
  void* library;
  bool simulated;

  /// Null without the library; then the hazards that need it fail by name.
  decltype(&::lowtide_scope_begin) scope_begin;
  decltype(&::lowtide_scope_end) scope_end;
  decltype(&::lowtide_set) set;
  decltype(&::lowtide_read_paused) read_paused;
  decltype(&::lowtide_write_paused) write_paused;
  decltype(&::lowtide_pause) pause;
  decltype(&::lowtide_resume) resume;
  decltype(&::lowtide_get_tag_info) tag_info;
  decltype(&::lowtide_last_error) last_error;
};

/// The one instance, loaded by the first call. Ends the program with a message if there is no driver.
const Driver& driver();

/// A hazard was not survived; `what` says how.
struct Failed {
  std::string what;
};
void require(bool ok, const std::string& what);

/// The call must succeed.
void must(CUresult result, const char* call);
std::string name_of(CUresult result);

}  // namespace hazards
