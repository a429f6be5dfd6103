// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "backends/simulated/sim_control.h"
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

CUresult load(Function function, CUmodule* out, const void* image) {
  return with_context_outside_capture(function, [&](Simulator& simulator, const ContextPtr& context) {
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto known = recognise(static_cast<const char*>(image));
    if (!known) return CUDA_ERROR_INVALID_IMAGE;
    Address global = 0;
    if (const auto size = global_of(*known).size; size != 0) {
      const auto result = simulator.memory.allocate_global(&global, size, context->device, context->id());
      if (result != CUDA_SUCCESS) return result;
    }
    const std::lock_guard lock(simulator.monitor.mutex);
    *out = simulator.modules.add(std::make_shared<Module>(Module{context, *known, global}));
    return CUDA_SUCCESS;
  });
}

struct Dimensions {
  unsigned grid[3];
  unsigned block[3];

  bool valid() const {
    for (int i = 0; i < 3; ++i) {
      if (grid[i] == 0 || block[i] == 0) return false;
    }
    return std::uint64_t{block[0]} * block[1] * block[2] <= 1024;
  }
};

CUresult launch(Function function, CUfunction handle, const Dimensions& dimensions, CUstream stream_handle,
                void** parameters, void** extra) {
  return in_stream(function, stream_handle, [&](Simulator& simulator, const StreamPtr& stream) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto found = simulator.kernel_functions.find(handle);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    const auto& kernel = *found->kernel;
    if (!dimensions.valid() || extra != nullptr || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::uint64_t> arguments(kernel.parameters);
    for (std::size_t i = 0; i < arguments.size(); ++i) std::memcpy(&arguments[i], parameters[i], sizeof arguments[i]);
    const auto& context = stream->context;
    const auto blocks = std::uint64_t{dimensions.grid[0]} * dimensions.grid[1] * dimensions.grid[2];
    return simulator.streams.submit_locked(
        stream, [&memory = simulator.memory, &kernel, context, blocks, arguments = std::move(arguments)] {
          return kernel.run({memory, context->kernel(), context->dead, blocks}, arguments);
        });
  });
}

CUresult launch_configured(Function function, const CUlaunchConfig* config, CUfunction kernel, void** parameters,
                           void** extra) {
  if (config == nullptr) {
    return with_context(function, [](Simulator&, const ContextPtr&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  const Dimensions dimensions{{config->gridDimX, config->gridDimY, config->gridDimZ},
                              {config->blockDimX, config->blockDimY, config->blockDimZ}};
  return launch(function, kernel, dimensions, config->hStream, parameters, extra);
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* out, const void* image) { return load(Function::cuModuleLoadData, out, image); }

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int, CUjit_option*, void**) {
  return load(Function::cuModuleLoadDataEx, out, image);
}

CUresult cuModuleUnload(CUmodule handle) {
  return with_context_outside_capture(Function::cuModuleUnload, [&](Simulator& simulator, const ContextPtr&) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto module = simulator.modules.take(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    simulator.kernel_functions.drop_if([&](const KernelFunction& function) { return function.module == module; });
    if (module->global != 0) (void)simulator.memory.free(module->global);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return with_context(Function::cuModuleGetFunction, [&](Simulator& simulator, const ContextPtr&) {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto module = simulator.modules.find(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    const auto* kernel = find_kernel(module->image, name);
    if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
    *out = simulator.kernel_functions.add(std::make_shared<KernelFunction>(KernelFunction{module, kernel}));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* out, size_t* size, CUmodule handle, const char* name) {
  return with_context(Function::cuModuleGetGlobal_v2, [&](Simulator& simulator, const ContextPtr&) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto module = simulator.modules.find(handle);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    const auto global = global_of(module->image);
    if (global.size == 0 || global.name != name) return CUDA_ERROR_NOT_FOUND;
    if (out != nullptr) *out = module->global;
    if (size != nullptr) *size = global.size;
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchKernel(CUfunction kernel, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int, CUstream stream, void** parameters,
                        void** extra) {
  return launch(Function::cuLaunchKernel, kernel, {{gx, gy, gz}, {bx, by, bz}}, stream, parameters, extra);
}
CUresult cuLaunchKernel_ptsz(CUfunction kernel, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                             unsigned int by, unsigned int bz, unsigned int, CUstream stream, void** parameters,
                             void** extra) {
  return launch(Function::cuLaunchKernel_ptsz, kernel, {{gx, gy, gz}, {bx, by, bz}}, stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction kernel, void** parameters, void** extra) {
  return launch_configured(Function::cuLaunchKernelEx, config, kernel, parameters, extra);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction kernel, void** parameters, void** extra) {
  return launch_configured(Function::cuLaunchKernelEx_ptsz, config, kernel, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction kernel, unsigned int gx, unsigned int gy, unsigned int gz,
                                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int, CUstream stream,
                                   void** parameters) {
  return launch(Function::cuLaunchCooperativeKernel, kernel, {{gx, gy, gz}, {bx, by, bz}}, stream, parameters, nullptr);
}
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction kernel, unsigned int gx, unsigned int gy, unsigned int gz,
                                        unsigned int bx, unsigned int by, unsigned int bz, unsigned int,
                                        CUstream stream, void** parameters) {
  return launch(Function::cuLaunchCooperativeKernel_ptsz, kernel, {{gx, gy, gz}, {bx, by, bz}}, stream, parameters,
                nullptr);
}

}  // extern "C"
