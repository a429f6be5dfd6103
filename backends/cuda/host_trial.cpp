// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/host_trial.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "allocator/base/unique_fd.hpp"
#include "allocator/core/trial_memory.hpp"

namespace lowtide::cuda {
namespace {

/// Reads what the host sees at `address`, through a pipe: where the host has no access this is an error and no fault.
bool host_reads(DeviceAddress address, std::array<std::uint8_t, 4096>& bytes) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const auto all = static_cast<ssize_t>(bytes.size());
  return ::write(to.get(), reinterpret_cast<const void*>(address.value), bytes.size()) == all &&
         ::read(from.get(), bytes.data(), bytes.size()) == all;
}

/// One granule's life as host memory behind a device address, mapped twice as a pause does.
class HostTrial : private TrialMemory {
 public:
  explicit HostTrial(Backend& backend) : TrialMemory(backend, backend.capabilities().granularity) {}

  /// The device writes it, and then the device and the host read it.
  Status run() {
    if (auto status = reserve(); !status) return status;
    if (auto status = take(backend_.create_host(size_)); !status) return status;
    if (auto status = map(); !status) return status;
    if (auto status = backend_.set_access(range_, {}); !status) return status;
    if (auto status = backend_.fill(range_, pattern); !status) return status;
    if (auto status = backend_.finish_copies(); !status) return status;
    if (auto status = unmap(); !status) return status;
    if (auto status = map(); !status) return status;
    if (auto status = backend_.set_read_access(range_, {}); !status) return status;
    return read();
  }

 private:
  static constexpr std::uint8_t pattern = 0xa5;

  /// The host first: a device that has no access after all ends the context's life.
  Status read() {
    if (!host_reads(range_.start, bytes_) || !bytes_are(pattern)) return unseen();
    const auto seen = reads({}, pattern);
    if (!seen) return fail(seen.error());
    return *seen ? Status() : unseen();
  }
  static Failure unseen() {
    return fail(Code::unsupported, "host memory behind a device address does not hold its bytes");
  }
};

}  // namespace

bool holds_host_memory(Backend& backend) { return HostTrial(backend).run().has_value(); }

}  // namespace lowtide::cuda
