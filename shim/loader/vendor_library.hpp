// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "shim/door_table.h"
#include "shim/loader/real_loader.hpp"

namespace lowtide {

/// The vendor's library if it is loaded, else null: libcuda.so.1, or libamdhip64.so of any version. dlerror may have a
/// message afterwards. `loader` has dlopen.
void* find_vendor_library(const RealLoader& loader, lowtide_vendor vendor) noexcept;

/// The same, loaded if need be. Of HIP's versions the newest one that there is.
void* open_vendor_library(const RealLoader& loader, lowtide_vendor vendor) noexcept;

/// Whose library was loaded first; nothing if neither is. A library of the other vendor may come along with it.
std::optional<lowtide_vendor> first_loaded_vendor() noexcept;

}  // namespace lowtide
