// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

void* address_of(std::size_t index) {
  static void* const addresses[] = {
#define SIM_FUNCTION(exported, base, since, stream) reinterpret_cast<void*>(&exported),
#include "backends/simulated/functions.def"
#undef SIM_FUNCTION
  };
  return addresses[index];
}

struct Lookup {
  void* address = nullptr;
  bool exists = false;  ///< in some version
};

/// The newest form of `base` that `version` knows, of the wanted default stream if there is such a form.
Lookup look_up(std::string_view base, int version, bool per_thread) {
  Lookup lookup;
  int best = -1;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const auto& function = functions[i];
    const bool is_per_thread = function.stream == DefaultStream::per_thread;
    if (base != function.base || (is_per_thread && !per_thread)) continue;
    lookup.exists = true;
    // A per-thread form beats any legacy one, then the newest wins.
    const int rank = function.since + (is_per_thread ? 1'000'000 : 0);
    if (function.since > version || rank < best) continue;
    best = rank;
    lookup.address = address_of(i);
  }
  return lookup;
}

CUresult get_address(const char* name, void** out, int version, cuuint64_t flags, Lookup& lookup) {
  if (name == nullptr || out == nullptr || version > driver_version) return CUDA_ERROR_INVALID_VALUE;
  lookup = look_up(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  *out = lookup.address;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  return answer(Function::cuGetProcAddress, [&](Simulator&) {
    Lookup lookup;
    const auto result = get_address(name, out, version, flags, lookup);
    return result == CUDA_SUCCESS && lookup.address == nullptr ? CUDA_ERROR_NOT_FOUND : result;
  });
}

CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return answer(Function::cuGetProcAddress_v2, [&](Simulator&) {
    Lookup lookup;
    const auto result = get_address(name, out, version, flags, lookup);
    if (result != CUDA_SUCCESS || status == nullptr) return result;
    *status = lookup.address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : lookup.exists           ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return result;
  });
}

}  // extern "C"
