// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/simulated/address_space.hpp"
#include "backends/simulated/memory.hpp"

namespace lowtide::sim {
namespace {

// A descriptor crosses processes without words, so the name of the file behind it says what it is.
constexpr std::string_view exported_name = "lowtide-sim-device-";

/// The device of an exported file; -1 for any other file.
int device_of(int file) {
  std::array<char, 128> link{};
  const auto path = "/proc/self/fd/" + std::to_string(file);
  const auto length = ::readlink(path.c_str(), link.data(), link.size());
  const std::string_view text(link.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
  const auto at = text.find(exported_name);
  int device = -1;
  if (at != std::string_view::npos) {
    std::from_chars(text.data() + at + exported_name.size(), text.data() + text.size(), device);
  }
  return device;
}

/// Copies through a buffer: the pages may be mapped nowhere, and stay so.
bool copy_file(int to, int from, std::uint64_t offset, std::uint64_t size) {
  std::vector<char> buffer(granularity);
  for (std::uint64_t done = 0; done < size; done += buffer.size()) {
    const auto got = ::pread(from, buffer.data(), buffer.size(), static_cast<off_t>(offset + done));
    if (got != static_cast<ssize_t>(buffer.size())) return false;
    if (::pwrite(to, buffer.data(), buffer.size(), static_cast<off_t>(done)) != got) return false;
  }
  return true;
}

}  // namespace

/// Memory is a piece of its device's file until it is exported: a file each would use up the host's descriptors.
bool Memory::give_own_file(Physical& physical) {
  const auto name = std::string(exported_name) + std::to_string(physical.place());
  auto file = make_memory_file(name.c_str(), physical.size);
  const int shared = file_at(physical.place()).get();
  if (!file || !copy_file(file.get(), shared, physical.offset, physical.size)) return false;
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.physical.get() != &physical) continue;
    if (!map_file(address, mapping.size, file.get(), 0, mapping.protection())) return false;
  }
  discard_pages(shared, physical.offset, physical.size);
  physical.own_file = std::move(file);
  physical.offset = 0;
  return true;
}

CUresult Memory::export_file(int* out, CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto physical = find_physical(handle);
  if (out == nullptr || !physical) return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(physical->properties.requestedHandleTypes);
  if ((types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!physical->own_file && !give_own_file(*physical)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int copy = ::fcntl(physical->own_file.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *out = copy;
  return CUDA_SUCCESS;
}

/// Memory of this process that is behind the same file.
PhysicalPtr Memory::find_by_file(int file) {
  struct stat wanted {};
  if (::fstat(file, &wanted) != 0) return nullptr;
  for (const auto& [handle, physical] : physical_) {
    struct stat own {};
    if (!physical->own_file || ::fstat(physical->own_file.get(), &own) != 0) continue;
    if (own.st_dev == wanted.st_dev && own.st_ino == wanted.st_ino) return physical;
  }
  return nullptr;
}

CUresult Memory::import_file(CUmemGenericAllocationHandle* out, int file, int devices) {
  const std::lock_guard lock(mutex_);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const auto physical = find_by_file(file)) {
    ++physical->references;
    *out = physical->handle;
    return CUDA_SUCCESS;
  }
  const int device = device_of(file);
  struct stat status {};
  if (device < 0 || device >= devices || ::fstat(file, &status) != 0) return CUDA_ERROR_INVALID_VALUE;
  UniqueFd own(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (!own) return CUDA_ERROR_OPERATING_SYSTEM;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  const auto physical = add_physical(static_cast<std::uint64_t>(status.st_size), properties);
  physical->own_file = std::move(own);
  *out = physical->handle;
  return CUDA_SUCCESS;
}

}  // namespace lowtide::sim
