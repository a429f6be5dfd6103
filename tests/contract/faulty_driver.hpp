// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "backends/hip/runtime.hpp"

namespace lowtide::test {

struct DriverCall {
  const char* name;
  bool ok;
};

/// A driver table that notes every call, in order and over all functions, and lets a plan decide which of them fail. A
/// call that fails has no effect. One at a time; its calls come from one thread.
class FaultyDriver {
 public:
  /// Whether call `index` since `start`, which is one of `name`, fails.
  using Plan = std::function<bool(std::size_t index, std::string_view name)>;

  explicit FaultyDriver(const cuda::Driver& real);
  FaultyDriver(const FaultyDriver&) = delete;
  FaultyDriver& operator=(const FaultyDriver&) = delete;
  ~FaultyDriver();

  const cuda::Driver& table() const noexcept { return table_; }

  void start(Plan plan);
  /// Nothing fails any more. Returns the calls since `start`.
  std::vector<DriverCall> stop();

 private:
  cuda::Driver table_;
};

/// The same for HIP's runtime: its calls are noted, and fail, as the plan of the FaultyDriver that lives then wants it.
hip::Runtime faulty_runtime(const hip::Runtime& real);

/// The `index`th call fails, and no other.
FaultyDriver::Plan once(std::size_t index);
/// The `index`th call and all later ones fail.
FaultyDriver::Plan from(std::size_t index);
/// The `index`th call and all later ones of the same function fail.
FaultyDriver::Plan function_from(std::size_t index);
/// The `index`th call fails, and the first one of `later` after it.
FaultyDriver::Plan once_and_next(std::size_t index, std::string_view later);
/// The calls `index` and `later` fail.
FaultyDriver::Plan both(std::size_t index, std::size_t later);

}  // namespace lowtide::test
