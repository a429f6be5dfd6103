// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include "allocator/base/page_digest.hpp"
#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// What a device can do, found by trying (the probe), not by asking attributes or versions.
struct Capabilities {
  /// A parked block's address is its own when its memory comes back. False: a resume may answer Code::moved.
  bool stable_address = false;
  /// A pause frees device memory. False: every block stays where it is.
  bool gives_back = true;
  /// Memory is the driver's plain one: it dies with its context, and legacy IPC handles of it can be had.
  bool is_plain = false;
  /// Each extent needs a reservation of its own.
  bool reserves_each = false;
  /// Physical memory can be exported as a POSIX file descriptor.
  bool export_fd = false;
  /// Network cards can read and write the physical memory directly (GPUDirect RDMA).
  bool rdma = false;
  /// The host's NUMA node that is nearest to the device; -1: not known.
  int host_node = -1;
  /// The unit of `create`, `map`, `unmap` and of a reservation, from the driver.
  Bytes granularity;
  /// Smaller blocks share extents of this size, a multiple of the granularity; zero: of the granularity.
  Bytes shared_extent{};
  /// Extents are whole multiples of this one, which is a multiple of the granularity; zero: of the granularity.
  Bytes extent_step{};
};

/// Free and total memory of a device, for all processes together.
struct MemoryInfo {
  Bytes free;
  Bytes total;
};

/// THE PORT: how one device's memory gets, loses and regains its physical pages. One object per device, made at the
/// device's first use.
///
/// All calls are thread-safe and may come from any thread, with any current context or none: a backend makes a context
/// of the device current and restores the caller's. Each returns an Error with Code::driver (Code::device_memory where
/// the device is full) and leaves what it was asked to change as it was. Ranges are multiples of `granularity` unless
/// said.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceId device() const noexcept = 0;
  /// What people call the device: "NVIDIA H200".
  virtual const std::string& device_name() const noexcept = 0;
  /// "vmm", "vmm+cycle", "recreate", "off".
  virtual const char* name() const noexcept = 0;
  /// One line for people: why this backend was chosen for this device.
  virtual const std::string& reason() const noexcept = 0;
  virtual const Capabilities& capabilities() const noexcept = 0;

  // Contexts. The backend works in any of the live contexts of its device.
  /// `context` was seen live on this device. Idempotent. Makes what a later pause needs on a full device (streams).
  virtual Status attach(ContextId context) = 0;
  /// `context` is gone or about to go; its streams go with it.
  virtual void detach(ContextId context) noexcept = 0;

  // Addresses.
  /// Reserves `size` bytes of address space, aligned to the granularity. Nothing is behind it. Where memory belongs to
  /// a context and dies with it (where it is plain), that is `context`, or any live one.
  virtual Result<DeviceAddress> reserve(Bytes size, ContextId context = {}) = 0;
  /// Gives back exactly what one `reserve` gave. No part of it is mapped.
  virtual Status release_reservation(AddressRange range) = 0;

  // Physical memory.
  /// Gets device memory for `range`, mapped nowhere. Code::device_memory if the device is full. Code::moved, unless
  /// the address is stable, if the addresses of `range` are somebody else's now; what was tried on the way goes back
  /// with the next finish_copies.
  virtual Result<PhysicalId> create(AddressRange range) = 0;
  /// Whether host memory can lie behind a device address, where kernels, copies and the host read it. Finds out by
  /// trying, with one granule, when it is first asked; after a yes it is not tried again.
  virtual bool has_host_backing() = 0;
  /// Gets `size` bytes of host memory that can be mapped like device memory, on the node that is nearest to the device;
  /// takes none of the device's. Slow: the driver gets it page by page. Only with `has_host_backing`. Code::host_budget
  /// if the host has not that much.
  virtual Result<PhysicalId> create_host(Bytes size) = 0;
  /// Gives the memory back to the driver. It is mapped nowhere.
  virtual Status release(PhysicalId physical) = 0;
  /// The memory of `range`, a whole reservation, was released by a pause, and a resume will ask for it again: does what
  /// the device needs for the memory to come free and the address to stay. Code::moved if somebody else got the address
  /// meanwhile; the memory is free all the same. Only with `reserves_each`.
  virtual Status keep_address(AddressRange range) = 0;
  /// Whether somebody else's memory begins at `address`, where a block is parked. Only without a stable address.
  virtual bool is_taken(DeviceAddress address) = 0;
  /// Puts all of `physical` behind `range`: same size, inside one reservation, nothing mapped there. Not yet
  /// accessible.
  virtual Status map(AddressRange range, PhysicalId physical) = 0;
  /// Takes the memory away from `range`, which is one or more whole mappings. No work that touches it is in flight
  /// (the caller has synchronised).
  virtual Status unmap(AddressRange range) = 0;
  /// Lets this device and `peers` read and write `range`, which is one or more whole mappings.
  virtual Status set_access(AddressRange range, std::span<const DeviceId> peers) = 0;

  /// Lets this device and `peers` read `range`, and the host read and write it at the same address. `range` is one or
  /// more whole mappings of host memory, newly mapped: access that was given to a mapping is not taken back.
  virtual Status set_read_access(AddressRange range, std::span<const DeviceId> peers) = 0;

  // Bytes.
  /// Starts copying `range.size` bytes (any size, any alignment) from the device to `host`, which was registered or is
  /// any host memory (slower). The bytes are there after `finish_copies`. `range` is accessible.
  virtual Status copy_out(void* host, AddressRange range) = 0;
  /// The other direction.
  virtual Status copy_in(AddressRange range, const void* host) = 0;
  /// Starts copying `to.size` bytes from the memory behind `from` to that behind `to`; they are there after
  /// `finish_copies`. Both are accessible, and do not overlap.
  virtual Status copy_within(AddressRange to, DeviceAddress from) = 0;
  /// Starts writing `value` to every byte of `range`; done after `finish_copies`.
  virtual Status fill(AddressRange range, std::uint8_t value) = 0;
  /// Waits until at most `in_flight` bytes of the started copies and fills are still to be done: for who fills a buffer
  /// again, or tells how far it is. After an error, as finish_copies.
  virtual Status limit_copies(Bytes in_flight) = 0;
  /// Waits for all copies and fills that were started on this backend. After an error their bytes are undefined, and
  /// they may be in flight until a later finish_copies or synchronise succeeds: the memory of both sides has to stay.
  virtual Status finish_copies() = 0;

  /// The digests of `pages` (each at most digest_page bytes, accessible, at any address), one for one, by `digest_key`;
  /// they are there when this returns. The caller has waited for all that writes to them, copies in and fills too;
  /// copies out go on meanwhile. Needs no device memory. One call runs at a time, a second waits. Code::unsupported
  /// where the device cannot: the caller then copies every page.
  /// After another error pages may still be read, until a later finish_copies or synchronise succeeds.
  virtual Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) = 0;
  // Blank memory (base/blank.hpp), under the same conditions as digests; a page begins at a multiple of 8. Where they
  // are Code::unsupported, the caller does it on the host.
  /// The pages hold it when this returns.
  virtual Status fill_blank(std::span<const AddressRange> pages) = 0;
  /// How many bytes of each page still do.
  virtual Status count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) = 0;
  /// The key of this device's digests, drawn with the backend: for digest_of on the host. Never changes.
  virtual const DigestKey& digest_key() const noexcept = 0;

  /// Waits until no work of this process is in flight on this device, in any live context.
  virtual Status synchronise() = 0;

  // Host memory for fast copies. `memory` is page-aligned and stays mapped until it is unregistered.
  virtual Status register_host(void* memory, Bytes size) = 0;
  /// Succeeds too if the registration is gone, with the context that it was made in.
  virtual Status unregister_host(void* memory) noexcept = 0;

  virtual Result<MemoryInfo> memory_info() = 0;
};

/// Memory as every GPU gives it, at addresses of the driver's choice: what a backend is made of that frees and
/// allocates again. Thread-safe; a call may come from any thread with any current context.
class PlainMemory {
 public:
  virtual ~PlainMemory() = default;
  /// Allocates in `context`, with which the memory dies, or in any live one. Code::device_memory if the device is full.
  virtual Result<DeviceAddress> allocate(Bytes size, ContextId context) = 0;
  virtual Status free(DeviceAddress address, ContextId context) = 0;
  /// Whether a live allocation of anybody in this process begins at `address`.
  virtual bool begins_at(DeviceAddress address) = 0;
};

/// Makes the backend of a device at its first use. Filled in by the composition root.
class BackendFactory {
 public:
  virtual ~BackendFactory() = default;
  /// `context` is live on `device` and current on the calling thread.
  virtual Result<std::unique_ptr<Backend>> make(DeviceId device, ContextId context) = 0;
};

}  // namespace lowtide
