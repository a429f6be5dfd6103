// SPDX-License-Identifier: Apache-2.0
// The doors: what substitution by address rests on, and that they lead to Lowtide at all.
#include <dlfcn.h>

#include <array>
#include <cctype>
#include <cstring>

#include "tests/gpu/hazards/stage.hpp"

namespace hazards {
namespace {

struct Hooked {
  const char* name;          // of the exported symbol
  const char* typedef_name;  // its PFN_ type: BASE_vVERSION[_ptsz|_ptds]
};

constexpr Hooked kHooked[] = {
#define LOWTIDE_CUDA_VERSION CUDA_VERSION
#define HOOK(name, class, typedef_name) {#name, #typedef_name},
#include "shim/hooks.def"
#undef HOOK
};

// What cuGetProcAddress_v2 answers for the name, version and stream flag in the PFN_ type's name.
void* by_proc_address(const Hooked& hooked) {
  const std::string type = hooked.typedef_name;
  std::size_t at = type.rfind("_v");
  while (at != std::string::npos && std::isdigit(static_cast<unsigned char>(type[at + 2])) == 0)
    at = type.rfind("_v", at - 1);
  const std::string base = type.substr(0, at);
  const int version = std::stoi(type.substr(at + 2));
  const bool per_thread = type.find("_ptsz", at) != std::string::npos || type.find("_ptds", at) != std::string::npos;
  const auto flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  void* address = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (driver().proc_address(base.c_str(), &address, version, flags, &found) != CUDA_SUCCESS) return nullptr;
  return address;
}

std::string dlsym_and_cu_get_proc_address_agree(Stage&) {
  std::string differing;
  int same = 0;
  int only_dlsym = 0;
  int absent = 0;
  for (const Hooked& hooked : kHooked) {
    void* exported = dlsym(driver().library, hooked.name);
    void* answered = by_proc_address(hooked);
    if (exported == nullptr) {
      ++absent;
    } else if (answered == nullptr) {
      ++only_dlsym;
    } else if (exported == answered) {
      ++same;
    } else {
      differing += std::string(differing.empty() ? "" : " ") + hooked.name;
    }
  }
  require(differing.empty(), "two addresses: " + differing);
  return std::to_string(same) + " names with one address, " + std::to_string(only_dlsym) + " known to dlsym only, " +
         std::to_string(absent) + " not in this driver";
}

std::string a_scope_reaches_lowtide_through_the_doors(Stage& stage) {
  const Block& block = stage.make("weights", stage.sizes().block_bytes);
  const lowtide_tag_info info = stage.info("weights");
  require(info.blocks == 1 && info.bytes_resident == block.size,
          std::to_string(info.blocks) + " blocks of " + std::to_string(info.bytes_resident) + " bytes are known");
  return std::to_string(info.bytes_resident) + " bytes";
}

std::string a_parked_block_still_has_an_address_range(Stage& stage) {
  const Block& block = stage.make("weights", stage.sizes().block_bytes + 12345);
  stage.pause("weights");
  CUdeviceptr base = 0;
  std::size_t size = 0;
  must(driver().address_range(&base, &size, block.address + 777), "cuMemGetAddressRange of a parked block");
  require(base == block.address && size == block.size,
          "the range is " + std::to_string(size) + " bytes, not " + std::to_string(block.size));
  stage.resume("weights");
  stage.check_all();
  return std::to_string(size) + " bytes";
}

}  // namespace

std::vector<Hazard> door_hazards() {
  return {{"dlsym_and_cu_get_proc_address_agree", dlsym_and_cu_get_proc_address_agree},
          {"a_scope_reaches_lowtide_through_the_doors", a_scope_reaches_lowtide_through_the_doors},
          {"a_parked_block_still_has_an_address_range", a_parked_block_still_has_an_address_range}};
}

}  // namespace hazards
