// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/runtime_world.hpp"

#include <algorithm>
#include <stdexcept>

#include "allocator/base/log.hpp"

namespace lowtide::test {

Result<std::unique_ptr<Backend>> VmmFactory::make(DeviceId device, ContextId) {
  const Capabilities can{.stable_address = true, .export_fd = true, .rdma = true, .granularity = 2_MiB};
  return std::make_unique<cuda::VmmBackend>(driver_, device, "simulated", can, "test");
}

RuntimeWorld::RuntimeWorld(const cuda::Driver& driver, std::size_t device_count)
    : driver_(driver), factory_(driver), runtime(built_in_configuration(), factory_, true) {
  set_log_level(LogLevel::off);
  for (std::size_t i = 0; i < device_count; ++i) {
    CUcontext primary = nullptr;
    if (driver.cuDevicePrimaryCtxRetain(&primary, static_cast<int>(i)) != CUDA_SUCCESS)
      throw std::runtime_error("retain");
    contexts_.push_back({reinterpret_cast<std::uintptr_t>(primary)});
  }
}

RuntimeWorld::~RuntimeWorld() {
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    runtime.drop_context(contexts_[i], true);
    (void)driver_.cuDevicePrimaryCtxRelease_v2(static_cast<int>(i));
  }
}

DeviceAddress RuntimeWorld::add(const char* tag, Bytes size, std::uint8_t value, std::size_t device) {
  const auto backend = attach(device);
  if (!backend) throw std::runtime_error(backend.error().message());
  const auto address = runtime.allocate(**backend, tag_name(tag), context(device), size);
  if (!address) throw std::runtime_error(address.error().message());
  if (!(*backend)->fill({*address, size}, value) || !(*backend)->finish_copies()) throw std::runtime_error("fill");
  return *address;
}

bool RuntimeWorld::holds(DeviceAddress address, Bytes size, std::uint8_t value, std::size_t device) {
  std::vector<std::uint8_t> bytes(size.value, static_cast<std::uint8_t>(~value));
  const auto backend = attach(device);
  if (!backend || !(*backend)->copy_out(bytes.data(), {address, size}) || !(*backend)->finish_copies()) return false;
  return std::all_of(bytes.begin(), bytes.end(), [=](std::uint8_t byte) { return byte == value; });
}

bool RuntimeWorld::is_parked(DeviceAddress address) {
  const auto view = runtime.blocks().find(address);
  return view && !view->resident;
}

}  // namespace lowtide::test
