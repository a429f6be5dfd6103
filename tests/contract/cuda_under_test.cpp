// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/cuda_under_test.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "backends/cuda/probe.hpp"
#include "backends/portable/recreate_backend.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {
namespace {

/// What the tests need of the driver beyond what Lowtide calls.
struct ContextCalls {
  explicit ContextCalls(void* library) {
    create = reinterpret_cast<decltype(create)>(::dlsym(library, "cuCtxCreate_v2"));
    destroy = reinterpret_cast<decltype(destroy)>(::dlsym(library, "cuCtxDestroy_v2"));
    set = reinterpret_cast<decltype(set)>(::dlsym(library, "cuCtxSetCurrent"));
  }
  CUresult (*create)(CUcontext*, unsigned, CUdevice) = nullptr;
  CUresult (*destroy)(CUcontext) = nullptr;
  CUresult (*set)(CUcontext) = nullptr;
};

ContextId id_of(CUcontext context) { return {reinterpret_cast<std::uintptr_t>(context)}; }
CUcontext handle(ContextId context) { return reinterpret_cast<CUcontext>(context.value); }

void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(call) + " answered " + std::to_string(result));
}

class CudaUnderTest final : public BackendUnderTest {
 public:
  CudaUnderTest(const cuda::Driver& driver, void* library, bool simulated, bool recreate)
      : driver_(driver), calls_(library), simulated_(simulated) {
    must(driver_.cuDevicePrimaryCtxRetain(&primary_, 0), "cuDevicePrimaryCtxRetain");
    must(calls_.set(nullptr), "cuCtxSetCurrent");
    if (recreate) {
      backend_ = std::make_unique<portable::RecreateBackend<cuda::Device>>(
          driver_, DeviceId{0}, "test", portable::plain_capabilities(true, -1), "test");
      if (!backend_->attach(id_of(primary_))) throw std::runtime_error("attach");
    } else {
      auto backend = cuda::probe(driver_, DeviceId{0}, id_of(primary_));
      if (!backend) throw std::runtime_error(backend.error().message());
      backend_ = std::move(*backend);
    }
  }
  ~CudaUnderTest() override {
    backend_.reset();
    (void)driver_.cuDevicePrimaryCtxRelease_v2(0);
  }

  Backend& backend() override { return *backend_; }
  ContextId context() override { return id_of(primary_); }

  void renew_context() override {
    must(driver_.cuDevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
    must(driver_.cuDevicePrimaryCtxRetain(&primary_, 0), "cuDevicePrimaryCtxRetain");
  }
  ContextId make_context() override {
    CUcontext context = nullptr;
    must(calls_.create(&context, 0, 0), "cuCtxCreate");
    CUcontext popped = nullptr;
    must(driver_.cuCtxPopCurrent_v2(&popped), "cuCtxPopCurrent");
    return id_of(context);
  }
  void destroy_context(ContextId context) override { must(calls_.destroy(handle(context)), "cuCtxDestroy"); }
  ContextId current_context() override {
    CUcontext context = nullptr;
    must(driver_.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    return id_of(context);
  }
  void set_current_context(ContextId context) override { must(calls_.set(handle(context)), "cuCtxSetCurrent"); }

  void start_fill(ContextId context, AddressRange range, std::uint8_t value) override {
    const cuda::ContextGuard guard(driver_, handle(context));
    CUstream stream = nullptr;
    must(driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(driver_.cuMemsetD8Async(range.start.value, value, range.size.value, stream), "cuMemsetD8Async");
    must(driver_.cuStreamDestroy_v2(stream), "cuStreamDestroy");  // lets the work go on
  }

  bool may_be_filled() const override { return simulated_; }
  std::vector<std::uint64_t> held() override {
    if (!simulated_) return {};
    const Held now = held_now();
    return {now.handles,       now.mappings,         now.reservations, now.plain_blocks, now.streams,
            now.registrations, now.host_allocations, now.modules,      now.used_bytes};
  }

 private:
  const cuda::Driver& driver_;
  ContextCalls calls_;
  bool simulated_;
  CUcontext primary_ = nullptr;
  std::unique_ptr<Backend> backend_;
};

}  // namespace

namespace {

std::unique_ptr<BackendUnderTest> make_simulated(bool recreate) {
  auto& simulated = SimulatedDriver::instance();
  return std::make_unique<CudaUnderTest>(simulated.driver(), simulated.library(), true, recreate);
}

std::unique_ptr<BackendUnderTest> make_real(bool recreate) {
  const char* const path = std::getenv("LOWTIDE_TEST_DRIVER");
  if (path == nullptr) return nullptr;
  static void* library = nullptr;
  static const cuda::Driver driver = open_driver(path, &library);
  return std::make_unique<CudaUnderTest>(driver, library, false, recreate);
}

}  // namespace

std::unique_ptr<BackendUnderTest> make_simulated_vmm() { return make_simulated(false); }
std::unique_ptr<BackendUnderTest> make_simulated_recreate() { return make_simulated(true); }
std::unique_ptr<BackendUnderTest> make_real_vmm() { return make_real(false); }
std::unique_ptr<BackendUnderTest> make_real_recreate() { return make_real(true); }

}  // namespace lowtide::test
