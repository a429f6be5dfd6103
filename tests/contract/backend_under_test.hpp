// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "allocator/core/backend.hpp"

namespace lowtide::test {

/// A device with a backend made for it, and what the port leaves to the program: contexts, and plain memory.
class BackendUnderTest {
 public:
  virtual ~BackendUnderTest() = default;
  virtual Backend& backend() = 0;
  /// The context that the backend was made with; current on no thread.
  virtual ContextId context() = 0;

  /// Ends that context, which was detached, and makes another in its place.
  virtual void renew_context() = 0;
  /// A further context of the device, current on no thread.
  virtual ContextId make_context() = 0;
  virtual void destroy_context(ContextId context) = 0;
  /// The calling thread's context; 0 is none.
  virtual ContextId current_context() = 0;
  virtual void set_current_context(ContextId context) = 0;

  /// Work that is in flight, in a context of its own making: writes `value` to the range, after the other work there.
  virtual void start_fill(ContextId context, AddressRange range, std::uint8_t value) = 0;

  /// What no test asks of a vendor that does not have it: more than one context of a device, host memory behind device
  /// addresses, a kernel for digests.
  virtual bool has_contexts() const { return true; }
  virtual bool has_host_backing() const { return true; }
  virtual bool has_digests() const { return true; }

  /// Whether the device is small enough to be filled up by a test.
  virtual bool may_be_filled() const = 0;
  /// What the process holds of the device, as far as the driver tells; empty where it does not.
  virtual std::vector<std::uint64_t> held() = 0;
};

struct BackendCase {
  const char* name;
  /// Null where this machine does not have the device.
  std::function<std::unique_ptr<BackendUnderTest>()> make;
};

/// Every backend that has to keep the contract. A new one joins by one line.
const std::vector<BackendCase>& backend_cases();

}  // namespace lowtide::test
