// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lowtide::sim {

/// What LOWTIDE_SIM_PERSONA names: the device that is played, and the defects of its software. The defects are those of
/// HIP's runtime, some release of which had them; `hip/` shows them over any CUDA driver.
struct Persona {
  std::string_view name;
  const char* device_name;
  /// The virtual memory calls answer that they are not supported.
  bool without_vmm = false;
  /// Physical memory that was mapped stays in use until its address range is freed, unmapped and released or not.
  bool keeps_pages = false;
  /// An address range that is asked for at an address comes at another.
  bool moves_addresses = false;
  /// A larger hipMemCreate answers out of memory, and a hipMemUnmap must be of one mapping.
  std::uint64_t largest_handle = UINT64_MAX;
  /// A physical handle has an open file descriptor until it is released.
  bool descriptor_per_handle = false;
  /// hipIpcGetMemHandle answers with a handle for mapped memory, which nobody can use.
  bool ipc_on_vmm = false;
};

/// The first is played where nothing is asked for.
inline constexpr std::array personas{
    Persona{.name = "h200", .device_name = "simulated H200"},
    Persona{.name = "mi300x", .device_name = "simulated MI300X"},
    Persona{.name = "mi250x-novmm", .device_name = "simulated MI250X", .without_vmm = true},
    Persona{.name = "rocm72-keeps-pages", .device_name = "simulated MI300X", .keeps_pages = true},
    Persona{.name = "moves-addresses", .device_name = "simulated MI300X", .keeps_pages = true, .moves_addresses = true},
    Persona{.name = "large-handles-fail", .device_name = "simulated MI300X", .largest_handle = std::uint64_t{32} << 20},
    Persona{.name = "descriptor-per-handle", .device_name = "simulated MI300X", .descriptor_per_handle = true},
    Persona{.name = "ipc-on-vmm", .device_name = "simulated MI300X", .ipc_on_vmm = true},
};

/// Null if there is none of that name.
constexpr const Persona* find_persona(std::string_view name) {
  for (const auto& persona : personas) {
    if (persona.name == name) return &persona;
  }
  return nullptr;
}

/// For the message about a name that is none.
inline constexpr const char* persona_names =
    "h200, mi300x, mi250x-novmm, rocm72-keeps-pages, moves-addresses, large-handles-fail, descriptor-per-handle or "
    "ipc-on-vmm";

}  // namespace lowtide::sim
