// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/loader/real_loader.hpp"
#include "shim/preload/symbols.hpp"

namespace lowtide::preload {

/// The real loader, read on first use and kept. Only dlerror may be null: a look-up without a loader answers NULL.
RealLoader real_loader() noexcept;

/// Whether the vendor's library (libcuda.so.1, libamdhip64.so) is loaded. When it first is, reads the real addresses
/// and points the exports at their hooks; from then on this is one load. The library is never unloaded afterwards,
/// since its addresses are kept. Waits for no other thread of ours: a thread may come here from a constructor, under
/// the loader's lock.
bool find_driver(lowtide_vendor vendor) noexcept;

/// find_driver, after loading the library if need be: somebody called one of its functions by name.
bool load_driver(lowtide_vendor vendor) noexcept;

/// The driver's own function; null if this driver has none of that name. Valid once find_driver answered true.
const void* real_address(std::size_t index) noexcept;

/// Our export in the place of the driver function at `address`; every other address unchanged.
void* substitute(lowtide_vendor vendor, void* address) noexcept;

/// The address that every door gives out for a symbol: that of our export.
void* export_address(std::size_t index) noexcept;

/// Calls the driver's own function. Only for symbols whose hook runs, or after asking real_address.
template <Symbol symbol, typename... Arguments>
auto real(Arguments... arguments) noexcept {
  const auto address = real_address(static_cast<std::size_t>(symbol));
  return reinterpret_cast<typename Vendor<symbol>::Function>(const_cast<void*>(address))(arguments...);
}

/// The stream that a _ptsz or _spt function means by `stream`.
inline CUstream per_thread(CUstream stream) noexcept { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }
inline hipStream_t per_thread(hipStream_t stream) noexcept { return stream == nullptr ? hipStreamPerThread : stream; }

}  // namespace lowtide::preload
