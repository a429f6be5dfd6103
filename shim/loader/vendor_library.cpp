// SPDX-License-Identifier: Apache-2.0
#include "shim/loader/vendor_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

namespace lowtide {
namespace {

/// The last is that of a ROCm wheel, which carries no version.
constexpr const char* hip_names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};

bool is_library(const char* path, const char* name) noexcept {
  const char* const slash = std::strrchr(path, '/');
  return std::strncmp(slash == nullptr ? path : slash + 1, name, std::strlen(name)) == 0;
}

/// Room for the path of a library: its own may go as soon as nobody holds the loader's lock.
struct LoadedPath {
  char text[4096];
};

int note_hip(dl_phdr_info* info, std::size_t, void* result) noexcept {
  const std::size_t length = std::strlen(info->dlpi_name);
  auto& path = *static_cast<LoadedPath*>(result);
  if (!is_library(info->dlpi_name, "libamdhip64.so") || length >= sizeof path.text) return 0;
  std::memcpy(path.text, info->dlpi_name, length + 1);
  return 1;
}

int note_vendor(dl_phdr_info* info, std::size_t, void* result) noexcept {
  auto& vendor = *static_cast<std::optional<lowtide_vendor>*>(result);
  if (is_library(info->dlpi_name, "libcuda.so")) vendor = LOWTIDE_CUDA;
  if (is_library(info->dlpi_name, "libamdhip64.so")) vendor = LOWTIDE_HIP;
  return vendor ? 1 : 0;
}

}  // namespace

void* find_vendor_library(const RealLoader& loader, lowtide_vendor vendor) noexcept {
  if (vendor == LOWTIDE_CUDA) return loader.dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  LoadedPath path;
  return ::dl_iterate_phdr(&note_hip, &path) == 0 ? nullptr : loader.dlopen(path.text, RTLD_NOW | RTLD_NOLOAD);
}

void* open_vendor_library(const RealLoader& loader, lowtide_vendor vendor) noexcept {
  if (vendor == LOWTIDE_CUDA) return loader.dlopen("libcuda.so.1", RTLD_NOW);
  void* library = find_vendor_library(loader, vendor);
  for (const char* name : hip_names) {
    if (library == nullptr) library = loader.dlopen(name, RTLD_NOW);
  }
  return library;
}

std::optional<lowtide_vendor> first_loaded_vendor() noexcept {
  std::optional<lowtide_vendor> vendor;
  ::dl_iterate_phdr(&note_vendor, &vendor);
  return vendor;
}

}  // namespace lowtide
