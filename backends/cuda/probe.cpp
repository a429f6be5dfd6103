// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/probe.hpp"

#include <array>

#include "backends/cuda/trial_memory.hpp"

namespace lowtide::cuda {
namespace {

constexpr int most_attempts = 5;
constexpr Bytes preferred_trial = 32_MiB;

/// One block's life: everything a pause and a resume need, once.
class Trial : private TrialMemory {
 public:
  using TrialMemory::TrialMemory;

  Status furnish() {
    if (auto status = reserve(); !status) return status;
    if (auto status = take(backend_.create(range_)); !status) return status;
    if (auto status = map(); !status) return status;
    return backend_.set_access(range_, {});
  }

  Status write_and_read() {
    const AddressRange tail{range_.start + (size_ - Bytes{bytes_.size()}), {bytes_.size()}};
    if (auto status = backend_.fill(tail, pattern); !status) return status;
    if (auto status = backend_.copy_out(bytes_.data(), tail); !status) return status;
    if (auto status = backend_.finish_copies(); !status) return status;
    if (bytes_are_pattern()) return {};
    return fail(Code::unsupported, "mapped memory does not hold what is written to it");
  }

  /// True if free memory rose by the trial's size when its memory went.
  Result<bool> take_down() {
    const auto before = backend_.memory_info();
    if (!before) return fail(before.error());
    if (auto status = unmap(); !status) return fail(status.error());
    if (auto status = release(); !status) return fail(status.error());
    const auto after = backend_.memory_info();
    if (!after) return fail(after.error());
    return after->free >= before->free + size_;
  }
};

Status try_once(VmmBackend& backend, Bytes size, bool& came_back) {
  Trial trial(backend, size);
  if (auto status = trial.furnish(); !status) return status;
  if (auto status = trial.write_and_read(); !status) return status;
  const auto rose = trial.take_down();
  if (!rose) return fail(rose.error());
  came_back = *rose;
  return {};
}

/// A nearly full device still has a granule; a neighbour that allocates at the wrong moment is outwaited.
Status try_sizes(VmmBackend& backend, bool& came_back) {
  const Bytes granule = backend.capabilities().granularity;
  Status status;
  for (int attempt = 0; attempt < most_attempts && !came_back; ++attempt) {
    status = try_once(backend, round_up(preferred_trial, granule), came_back);
    if (!status && status.error().code() == Code::device_memory) status = try_once(backend, granule, came_back);
    if (!status) return status;
  }
  return status;
}

Result<Bytes> granularity(const Driver& driver, DeviceId device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = index_of(device);
  std::size_t bytes = 0;
  const auto result = driver.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return fail(driver.error(result, "cuMemGetAllocationGranularity"));
  return Bytes{bytes};
}

std::string device_name(const Driver& driver, DeviceId device) {
  std::array<char, 128> name{};
  if (driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), index_of(device)) != CUDA_SUCCESS) {
    return "unnamed device";
  }
  return name.data();
}

std::string describe(const Capabilities& capabilities) {
  std::string text = "reserve, create, map, write, unmap work and free memory comes back";
  text += capabilities.export_fd ? "; exportable" : "; not exportable";
  text += capabilities.rdma ? ", RDMA" : ", no RDMA";
  return text;
}

/// The host's node nearest to the device; -1 where there is one only, and under drivers that do not say.
int host_node(const Driver& driver, DeviceId device) {
  constexpr auto host_numa_id =
      static_cast<CUdevice_attribute>(134);  // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID of newer headers
  int node = -1;
  const auto result = driver.cuDeviceGetAttribute(&node, host_numa_id, index_of(device));
  return result == CUDA_SUCCESS ? node : -1;
}

}  // namespace

Result<std::unique_ptr<VmmBackend>> probe(const Driver& driver, DeviceId device, ContextId context) {
  const auto granule = granularity(driver, device);
  if (!granule) return fail(granule.error());
  const std::string name = device_name(driver, device);

  Status status;
  // The most that memory can do first; a driver that refuses it gets a simpler wish.
  constexpr std::array<std::pair<bool, bool>, 3> wishes{{{true, true}, {true, false}, {false, false}}};
  for (const auto& [export_fd, rdma] : wishes) {
    const Capabilities wish{.stable_address = true,
                            .export_fd = export_fd,
                            .rdma = rdma,
                            .host_node = host_node(driver, device),
                            .granularity = *granule};
    auto backend = std::make_unique<VmmBackend>(driver, device, name, wish, describe(wish));
    if (status = backend->attach(context); !status) return fail(status.error());
    bool came_back = false;
    status = try_sizes(*backend, came_back);
    if (!status && status.error().code() == Code::device_memory) return fail(status.error());
    if (!status) continue;
    if (came_back) return backend;
    return fail(
        Error::format(Code::unsupported,
                      "device %d (%s) takes memory away and maps it again, but free memory does not rise: a pause "
                      "would free nothing",
                      index_of(device), name.c_str()));
  }
  return fail(Error::format(Code::unsupported, "device %d (%s) has no usable virtual memory management: %s",
                            index_of(device), name.c_str(), status.error().message()));
}

}  // namespace lowtide::cuda
