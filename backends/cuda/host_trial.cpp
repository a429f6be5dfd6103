// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/host_trial.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "allocator/base/unique_fd.hpp"

namespace lowtide::cuda {
namespace {

constexpr std::uint8_t pattern = 0xa5;

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

/// One granule's life as host memory behind a device address, mapped twice as a pause does. What it got it gives back.
class HostTrial {
 public:
  explicit HostTrial(Backend& backend) : backend_(backend), size_(backend.capabilities().granularity) {}
  HostTrial(const HostTrial&) = delete;
  HostTrial& operator=(const HostTrial&) = delete;
  ~HostTrial() {
    (void)backend_.finish_copies();
    if (mapped_) (void)backend_.unmap(range_);
    if (physical_.value != 0) (void)backend_.release(physical_);
    if (range_.start.value != 0) (void)backend_.release_reservation(range_);
  }

  /// The device writes it, and then the device and the host read it.
  Status run() {
    const auto start = backend_.reserve(size_);
    if (!start) return fail(start.error());
    range_ = {*start, size_};
    const auto physical = backend_.create_host(size_);
    if (!physical) return fail(physical.error());
    physical_ = *physical;
    if (auto status = map(); !status) return status;
    if (auto status = backend_.set_access(range_, {}); !status) return status;
    if (auto status = backend_.fill(range_, pattern); !status) return status;
    if (auto status = backend_.finish_copies(); !status) return status;
    if (auto status = backend_.unmap(range_); !status) return status;
    mapped_ = false;
    if (auto status = map(); !status) return status;
    if (auto status = backend_.set_read_access(range_, {}); !status) return status;
    return read();
  }

 private:
  Status map() {
    auto status = backend_.map(range_, physical_);
    mapped_ = status.has_value();
    return status;
  }
  /// The host first: a device that has no access after all ends the context's life.
  Status read() {
    std::array<std::uint8_t, 4096> bytes{};
    if (!host_reads(range_.start, bytes) || !is_pattern(bytes)) return fail(unseen);
    bytes = {};
    if (auto status = backend_.copy_out(bytes.data(), {range_.start, {bytes.size()}}); !status) return status;
    if (auto status = backend_.finish_copies(); !status) return status;
    return is_pattern(bytes) ? Status() : fail(unseen);
  }
  static bool is_pattern(std::span<const std::uint8_t> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == pattern; });
  }
  static inline const Error unseen{Code::unsupported, "host memory behind a device address does not hold its bytes"};

  Backend& backend_;
  Bytes size_;
  AddressRange range_{};
  PhysicalId physical_{};
  bool mapped_ = false;
};

}  // namespace

bool holds_host_memory(Backend& backend) { return HostTrial(backend).run().has_value(); }

}  // namespace lowtide::cuda
