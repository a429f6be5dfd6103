// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "backends/simulated/sim_control.h"
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

extern "C" {

int lowtide_sim_is_simulated(void) { return 1; }

int lowtide_sim_fail(const char* plan) {
  return Simulator::instance().faults.plan(plan == nullptr ? "" : plan) ? 0 : -1;
}

uint64_t lowtide_sim_calls(const char* function) { return Simulator::instance().faults.calls(function); }

const char* lowtide_sim_function_name(size_t index) {
  return index < functions.size() ? functions[index].exported : nullptr;
}

void lowtide_sim_counts(lowtide_sim_live* live) {
  auto& simulator = Simulator::instance();
  lowtide_sim_live now{};
  const auto memory = simulator.memory.counts();
  now.physical_handles = memory.physical;
  now.mappings = memory.mappings;
  now.reservations = memory.reservations;
  now.blocks = memory.blocks;
  now.host_registrations = memory.host_registrations;
  now.host_allocations = memory.host_allocations;
  now.contexts = simulator.contexts.count();
  {
    const std::lock_guard lock(simulator.monitor.mutex);
    now.streams = simulator.stream_handles.size();
    now.events = simulator.events.size();
    now.modules = simulator.modules.size();
    now.graphs = simulator.graphs.size() + simulator.executables.size();
  }
  for (int device = 0; device < most_devices; ++device) now.used_bytes[device] = simulator.capacity.used(device);
  const auto size = std::min(live->struct_size, sizeof now);
  now.struct_size = size;
  std::memcpy(live, &now, size);
}

}  // extern "C"
