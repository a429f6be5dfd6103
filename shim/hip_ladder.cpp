// SPDX-License-Identifier: Apache-2.0
#include "shim/hip_ladder.hpp"

#include <array>

#include "backends/hip/vmm_backend.hpp"
#include "backends/portable/recreate_backend.hpp"

namespace lowtide {
namespace {

/// What is tried where handles may have any size.
constexpr Bytes large_handle = 256_MiB;

/// Releases differ in the handles that they can make, and some need a descriptor for each: large ones come first.
constexpr std::array<std::optional<Bytes>, 3> chunks{std::nullopt, 64_MiB, 2_MiB};

Candidate vmm(hip::Reservations& reservations, const hip::Runtime& runtime, DeviceId device,
              const std::string& device_name, const hip::VmmHabits& habits) {
  const auto make = [&reservations, &runtime, device, device_name,
                     habits](std::string reason) -> Result<std::unique_ptr<Backend>> {
    const auto wish = hip::vmm_capabilities(runtime, device, habits, true);
    if (!wish) return fail(wish.error());
    return std::make_unique<hip::VmmBackend>(reservations, runtime, device, device_name, *wish, std::move(reason),
                                             habits);
  };
  const std::string handles = habits.chunk ? "handles of at most " + to_text(*habits.chunk) : "handles of any size";
  const std::string offer = habits.cycles ? "each pause gives the address up and asks for it again" : "addresses stay";
  const bool is_last = habits.chunk == chunks.back();  // taken as it is where there is no room to try more
  return {habits.cycles ? "vmm+cycle" : "vmm", offer + "; " + handles, make,
          habits.chunk ? *habits.chunk + portable::usual_trial : large_handle,
          is_last ? Bytes{} : habits.chunk.value_or(large_handle)};
}

Candidate plain(const hip::Runtime& runtime, DeviceId device, const std::string& device_name,
                portable::RecreatedMemory& memory, bool gives_back) {
  const auto make = [&runtime, device, device_name, &memory,
                     gives_back](std::string reason) -> Result<std::unique_ptr<Backend>> {
    constexpr int no_node = -1;
    return std::make_unique<portable::RecreateBackend<hip::Device>>(
        memory, runtime, device, device_name, portable::plain_capabilities(gives_back, no_node), std::move(reason));
  };
  if (gives_back) return {"recreate", "memory is freed and allocated again, at its address if that can be had", make};
  return {"off", "blocks stay where they are", make};
}

}  // namespace

Ladder hip_ladder(const hip::Runtime& runtime, DeviceId device, hip::Reservations& reservations,
                  portable::RecreatedMemory& memory) {
  const std::string name = hip::name_of(runtime, device);
  Ladder ladder;
  for (const bool cycles : {false, true}) {
    for (const auto& chunk : chunks) ladder.push_back(vmm(reservations, runtime, device, name, {chunk, cycles}));
  }
  for (const bool gives_back : {true, false}) ladder.push_back(plain(runtime, device, name, memory, gives_back));
  return ladder;
}

}  // namespace lowtide
