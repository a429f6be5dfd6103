// SPDX-License-Identifier: Apache-2.0
#include "shim/cuda_ladder.hpp"

#include "backends/cuda/device_facts.hpp"
#include "backends/cuda/vmm_backend.hpp"
#include "backends/portable/recreate_backend.hpp"

namespace lowtide {
namespace {

/// `before` is what the backend takes before a device's arguments.
template <class Made, class... Before>
Candidate candidate(const char* name, std::string offer, const Capabilities& wish, const cuda::Driver& driver,
                    DeviceId device, const std::string& device_name, Before&... before) {
  const auto make = [&driver, device, device_name, wish,
                     &before...](std::string reason) -> Result<std::unique_ptr<Backend>> {
    return std::make_unique<Made>(before..., driver, device, device_name, wish, std::move(reason));
  };
  return {name, std::move(offer), make};
}

}  // namespace

Ladder cuda_ladder(const cuda::Driver& driver, DeviceId device, portable::RecreatedMemory& memory) {
  const auto facts = cuda::facts_of(driver, device);
  Ladder ladder;
  // The most that memory can do first; a driver that refuses it gets a simpler wish.
  for (const auto& [export_fd, rdma] : {std::pair{true, true}, {true, false}, {false, false}}) {
    const std::string offer = std::string("addresses stay; ") + (export_fd ? "exportable" : "not exportable") +
                              (rdma ? ", RDMA" : ", no RDMA");
    const Capabilities wish{.stable_address = true,
                            .export_fd = export_fd,
                            .rdma = rdma,
                            .host_node = facts.host_node,
                            .granularity = facts.granularity.value_or(Bytes{})};
    ladder.push_back(candidate<cuda::VmmBackend>("vmm", offer, wish, driver, device, facts.name));
  }
  if (!facts.granularity) {
    ladder.erase(ladder.begin() + 1, ladder.end());
    ladder.front().make = [error = facts.granularity.error()](const std::string&) { return fail(error); };
  }
  using Plain = portable::RecreateBackend<cuda::Device>;
  ladder.push_back(
      candidate<Plain>("recreate", "memory is freed and allocated again, at its address if that can be had",
                       portable::plain_capabilities(true, facts.host_node), driver, device, facts.name, memory));
  ladder.push_back(candidate<Plain>("off", "blocks stay where they are",
                                    portable::plain_capabilities(false, facts.host_node), driver, device, facts.name,
                                    memory));
  return ladder;
}

}  // namespace lowtide
