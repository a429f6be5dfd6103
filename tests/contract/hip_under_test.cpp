// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/hip_under_test.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "backends/portable/recreate_backend.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {
namespace {

constexpr DeviceId device{0};

void must(hipError_t result, const char* call) {
  if (result != hipSuccess) throw std::runtime_error(std::string(call) + " answered " + std::to_string(result));
}

/// What the tests need of a runtime, beside what Lowtide calls.
struct OpenHip {
  explicit OpenHip(const char* path) {
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    const auto loaded = hip::load_runtime([](void* from, const char* name) { return ::dlsym(from, name); }, library);
    if (!loaded) throw std::runtime_error(loaded.error().message());
    runtime = *loaded;
    reset = reinterpret_cast<decltype(reset)>(::dlsym(library, "hipDeviceReset"));
    int count = 0;
    must(runtime.hipGetDeviceCount(&count), "hipGetDeviceCount");
  }
  hip::Runtime runtime;
  decltype(&::hipDeviceReset) reset = nullptr;
};

/// HIP has a context for each device, and a thread always has one of them. Here the first device's stands for none.
class HipUnderTest final : public BackendUnderTest {
 public:
  HipUnderTest(const OpenHip& hip, bool simulated, std::unique_ptr<Backend> backend)
      : runtime_(hip.runtime), reset_(hip.reset), simulated_(simulated), backend_(std::move(backend)) {
    if (const auto status = backend_->attach(context()); !status) throw std::runtime_error(status.error().message());
  }

  Backend& backend() override { return *backend_; }
  ContextId context() override { return hip::context_of(device); }

  void renew_context() override { must(reset_(), "hipDeviceReset"); }
  ContextId make_context() override {
    int count = 0;
    must(runtime_.hipGetDeviceCount(&count), "hipGetDeviceCount");
    return count > 1 ? hip::context_of(DeviceId{1}) : ContextId{};
  }
  void destroy_context(ContextId) override {}
  ContextId current_context() override {
    int current = 0;
    must(runtime_.hipGetDevice(&current), "hipGetDevice");
    return current == 0 ? ContextId{} : hip::context_of(DeviceId{current});
  }
  void set_current_context(ContextId context) override {
    must(runtime_.hipSetDevice(context == ContextId{} ? 0 : static_cast<int>(context.value - 1)), "hipSetDevice");
  }

  void start_fill(ContextId, AddressRange range, std::uint8_t value) override {
    hipStream_t stream = nullptr;
    must(runtime_.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags");
    must(runtime_.hipMemsetD8Async(reinterpret_cast<void*>(range.start.value), value, range.size.value, stream),
         "hipMemsetD8Async");
    must(runtime_.hipStreamDestroy(stream), "hipStreamDestroy");  // lets the work go on
  }

  bool has_contexts() const override { return false; }
  bool has_host_backing() const override { return false; }
  bool has_digests() const override { return false; }
  bool may_be_filled() const override { return simulated_; }
  std::vector<std::uint64_t> held() override {
    if (!simulated_) return {};
    const Held now = held_now();
    return {now.handles,       now.mappings,         now.reservations, now.plain_blocks, now.streams,
            now.registrations, now.host_allocations, now.modules,      now.used_bytes};
  }

 private:
  const hip::Runtime& runtime_;
  decltype(&::hipDeviceReset) reset_;
  bool simulated_;
  std::unique_ptr<Backend> backend_;
};

std::unique_ptr<Backend> make_vmm(const hip::Runtime& runtime, const hip::VmmHabits& habits) {
  const auto capabilities = hip::vmm_capabilities(runtime, device, habits, true);
  if (!capabilities) throw std::runtime_error(capabilities.error().message());
  static hip::Reservations reservations;
  return std::make_unique<hip::VmmBackend>(reservations, runtime, device, hip::name_of(runtime, device), *capabilities,
                                           "a test asked for it", habits);
}

std::unique_ptr<Backend> make_recreate(const hip::Runtime& runtime) {
  static portable::RecreatedMemory memory;
  return std::make_unique<portable::RecreateBackend<hip::Device>>(
      memory, runtime, device, hip::name_of(runtime, device), portable::plain_capabilities(true, -1),
      "a test asked for it");
}

const OpenHip& simulated_hip() {
  (void)SimulatedDriver::instance();  // loaded first, so that the runtime finds this driver
  static const OpenHip hip(LOWTIDE_SIM_HIP_LIBRARY);
  return hip;
}

/// Null if LOWTIDE_TEST_HIP names none.
const OpenHip* real_hip() {
  const char* const path = std::getenv("LOWTIDE_TEST_HIP");
  if (path == nullptr) return nullptr;
  static const OpenHip hip(path);
  return &hip;
}

}  // namespace

const hip::Runtime& simulated_hip_runtime() { return simulated_hip().runtime; }

std::unique_ptr<BackendUnderTest> make_simulated_hip(const hip::VmmHabits& habits) {
  const auto& hip = simulated_hip();
  return std::make_unique<HipUnderTest>(hip, true, make_vmm(hip.runtime, habits));
}

std::unique_ptr<BackendUnderTest> make_simulated_hip_recreate() {
  const auto& hip = simulated_hip();
  return std::make_unique<HipUnderTest>(hip, true, make_recreate(hip.runtime));
}

std::unique_ptr<BackendUnderTest> make_real_hip(const hip::VmmHabits& habits) {
  const auto* const hip = real_hip();
  return hip == nullptr ? nullptr : std::make_unique<HipUnderTest>(*hip, false, make_vmm(hip->runtime, habits));
}

std::unique_ptr<BackendUnderTest> make_real_hip_recreate() {
  const auto* const hip = real_hip();
  return hip == nullptr ? nullptr : std::make_unique<HipUnderTest>(*hip, false, make_recreate(hip->runtime));
}

}  // namespace lowtide::test
