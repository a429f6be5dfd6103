// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/host_backing.hpp"

#include <cstring>
#include <new>

#include "allocator/core/region.hpp"

namespace lowtide {

Backend& HostBacking::backend() const noexcept { return extent_.region.backend; }
AddressRange HostBacking::home() const noexcept { return extent_.range(); }

Status HostBacking::use_scratch(PhysicalId physical) {
  if (scratch_.size.value == 0) {
    const auto start = backend().reserve(home().size);
    // No want of device memory, whatever the driver calls it: a pause would be the answer to that.
    if (!start) return fail(Error(Code::driver, start.error().native(), start.error().call(), start.error().message()));
    scratch_ = {*start, home().size};
  }
  if (auto status = backend().map(scratch_, physical); !status) return status;
  scratch_used_ = true;
  return backend().set_access(scratch_, {});
}

Status HostBacking::clear_scratch() noexcept {
  if (!scratch_used_) return {};
  // An earlier attempt may have failed to wait for its copy.
  if (auto status = backend().finish_copies(); !status) return status;
  if (auto status = backend().unmap(scratch_); !status) return status;
  scratch_used_ = false;
  return {};
}

Status HostBacking::fill(HostPromise& promise) {
  if (auto status = clear_scratch(); !status) return status;
  if (!has_memory()) {
    const auto created = backend().create_host(home().size);
    if (!created) return fail(created.error());
    physical_ = *created;
    promise.taken(home().size);
  }
  if (auto status = use_scratch(physical_); !status) return status;
  return backend().copy_within(scratch_, home().start);
}

Status HostBacking::finish_fill() {
  if (auto status = clear_scratch(); !status) return status;
  filled_ = true;
  return {};
}

Status HostBacking::put_in_place() noexcept {
  try {
    if (home_ == Home::away) {
      if (auto status = backend().map(home(), physical_); !status) return status;
      home_ = Home::mapped;
    }
    if (home_ == Home::mapped) {
      if (auto status = backend().set_read_access(home(), peers_); !status) return status;
      home_ = Home::readable;
    }
    return {};
  } catch (const std::bad_alloc&) {
    return fail(Code::host_budget, "the host has no memory for the list of who may read a parked block");
  }
}

Status HostBacking::leave_home() noexcept {
  if (home_ == Home::away) return {};
  if (auto status = backend().unmap(home()); !status) return status;
  home_ = Home::away;
  return {};
}

Status HostBacking::stage() {
  if (auto status = clear_scratch(); !status) return status;
  if (auto bytes = this->bytes(); !bytes) return fail(bytes.error());
  if (auto status = extent_.climb_to_created(backend()); !status) return status;
  if (auto status = use_scratch(extent_.physical()); !status) return status;
  return extent_.backup->begin_load(backend(), scratch_.start);
}

Status HostBacking::exchange(std::span<const DeviceId> peers) {
  if (auto status = clear_scratch(); !status) return status;
  if (auto status = leave_home(); !status) return status;
  return extent_.climb(backend(), peers);
}

void HostBacking::restore() noexcept {
  if (!clear_scratch()) return;  // the device memory would not come free, and the next attempt would not know of it
  (void)extent_.descend(backend());
  if (!extent_.mapped()) (void)put_in_place();
}

Status HostBacking::give_back() noexcept {
  filled_ = false;
  if (auto status = clear_scratch(); !status) return status;
  if (auto status = leave_home(); !status) return status;
  if (has_memory()) {
    if (auto status = backend().release(physical_); !status) return status;
    physical_ = {};
    store_.host_given_back(home().size);
  }
  if (scratch_.size.value == 0) return {};
  auto status = backend().release_reservation(scratch_);
  if (status) scratch_ = {};
  return status;
}

Status HostBacking::set_peers(std::vector<DeviceId> peers) {
  peers_ = std::move(peers);
  return in_place() ? backend().set_read_access(home(), peers_) : Status();
}

Result<std::span<std::byte>> HostBacking::bytes() noexcept {
  if (auto status = extent_.descend_to_created(backend()); !status) return fail(status.error());
  if (auto status = put_in_place(); !status) return fail(status.error());
  return std::span(reinterpret_cast<std::byte*>(home().start.value), home().size.value);
}

void retire_host_backing(Extent& extent, const BackupStore& store) noexcept {
  if (!extent.host) return;
  if (store.retains_host())
    extent.host->keep_memory();
  else
    drop_host_backing(extent);
}

void drop_host_backing(Extent& extent) noexcept {
  if (extent.host && extent.host->give_back()) extent.host.reset();
}

HostBackedBackup::HostBackedBackup(Extent& extent, BackupStore& store)
    : extent_(extent), store_(store), size_(extent.range().size) {
  store_.count_host_backed(size_, true);
}

HostBackedBackup::~HostBackedBackup() { store_.count_host_backed(size_, false); }

Result<std::span<std::byte>> HostBackedBackup::part(Bytes offset, Bytes size) const {
  if (offset > size_ || size > size_ - offset) {
    return fail(Error::format(Code::invalid, "bytes %llu to %llu of an extent of %s were not saved",
                              static_cast<unsigned long long>(offset.value),
                              static_cast<unsigned long long>((offset + size).value), to_text(size_).c_str()));
  }
  const auto bytes = extent_.host->bytes();
  if (!bytes) return fail(bytes.error());
  return bytes->subspan(offset.value, size.value);
}

Status HostBackedBackup::read(Bytes offset, void* host, Bytes size) const {
  const auto bytes = part(offset, size);
  if (!bytes) return fail(bytes.error());
  std::memcpy(host, bytes->data(), bytes->size());
  return {};
}

Status HostBackedBackup::write(Bytes offset, const void* host, Bytes size) {
  const auto bytes = part(offset, size);
  if (!bytes) return fail(bytes.error());
  std::memcpy(bytes->data(), host, bytes->size());
  return {};
}

Result<std::span<const std::byte>> HostBackedBackup::view(Bytes offset) const {
  const auto bytes = part(offset, offset < size_ ? size_ - offset : Bytes{1});
  if (!bytes) return fail(bytes.error());
  return *bytes;
}

Status HostBackedBackup::begin_load(Backend& backend, DeviceAddress start) {
  return backend.copy_within({start, size_}, extent_.range().start);
}

}  // namespace lowtide
