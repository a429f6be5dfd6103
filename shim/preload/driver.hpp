// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/loader/real_loader.hpp"
#include "shim/preload/symbols.hpp"

namespace lowtide::preload {

/// The real loader, read on first use and kept. Only dlerror may be null: a look-up without a loader answers NULL.
RealLoader real_loader() noexcept;

/// Whether libcuda.so.1 is loaded. When it first is, reads the real addresses and points the exports at their hooks;
/// from then on this is one load. The driver is never unloaded afterwards, since its addresses are kept. Waits for no
/// other thread of ours: a thread may come here from a constructor, under the loader's lock.
bool find_driver() noexcept;

/// find_driver, after loading libcuda.so.1 if need be: somebody called a driver function by name.
bool load_driver() noexcept;

/// The driver's own function; null if this driver has none of that name. Valid once find_driver answered true.
const void* real_address(std::size_t index) noexcept;

/// Our export in the place of the driver function at `address`; every other address unchanged.
void* substitute(void* address) noexcept;

/// The address that every door gives out for a symbol: that of our export.
void* export_address(std::size_t index) noexcept;

/// Calls the driver's own function. Only for symbols whose hook runs, or after asking real_address.
template <Symbol symbol, typename... Arguments>
CUresult real(Arguments... arguments) noexcept {
  const auto address = real_address(static_cast<std::size_t>(symbol));
  return reinterpret_cast<typename Vendor<symbol>::Function>(const_cast<void*>(address))(arguments...);
}

/// The stream that a _ptsz function means by `stream`.
inline CUstream per_thread(CUstream stream) noexcept { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

}  // namespace lowtide::preload
