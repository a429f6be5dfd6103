// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "allocator/core/types.hpp"

namespace lowtide::compat {

/// What torch_memory_saver's calls say of the allocations of one thread.
struct RegionFlags {
  RegionFlags() { set_name("default"); }
  /// May throw std::bad_alloc, and then nothing changed.
  void set_name(std::string_view its_name);
  /// What allocations carry. The host goes before the disk if both are asked for, which its Python never does.
  Label label() const noexcept;

  bool interesting = false;  ///< allocations belong to the region; else to whoever would have them without it
  bool cpu_backup = false;
  bool disk_backup = false;
  bool mmap = false;  ///< the word for `cpu_backup_backend`; both words mean the same host memory here
  std::string name;   ///< of the region, as it was said
  TagName tag;
};

/// As TMS_INIT_ENABLE, TMS_INIT_ENABLE_CPU_BACKUP, TMS_INIT_ENABLE_DISK_BACKUP and TMS_INIT_CPU_BACKUP_BACKEND say. A
/// word that means nothing is told of and taken for "no".
RegionFlags flags_from_environment();

/// As TMS_RETAIN_CPU_BACKUP says.
bool retains_by_environment();

/// The tag of a region: its name, or where that is no tag's, one made of its letters and a number of its own.
TagName tag_for(std::string_view name);

}  // namespace lowtide::compat
