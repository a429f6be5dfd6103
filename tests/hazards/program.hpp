// SPDX-License-Identifier: Apache-2.0
// What the user programs of these tests do with the driver: plain linked calls, as an application makes them, which the
// preload answers, and the C API of liblowtide.so. Nothing here knows of the doors.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "allocator/include/lowtide/lowtide.h"
#include "backends/simulated/sim_control.h"

namespace hazards {

constexpr std::size_t kib = std::size_t{1} << 10;
constexpr std::size_t mib = std::size_t{1} << 20;

/// The call must succeed; throws std::runtime_error with the error's name and the line.
void must(CUresult result, int line = __builtin_LINE());
void must(lowtide_result result, int line = __builtin_LINE());
void must(bool ok, const char* what, int line = __builtin_LINE());

/// cuInit, and the primary context of `device`, retained for the life of the process and made current.
CUcontext use_device(int device = 0);
/// Makes a context current, and the one before again.
class Current {
 public:
  explicit Current(CUcontext context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  CUcontext before_ = nullptr;
};

/// The calling thread's allocations carry `tag`; null: nothing changes.
class Scope {
 public:
  explicit Scope(const char* tag);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool begun_ = false;
};

/// Device memory full of random bytes, from cuMemAlloc of the current context. Freed with it, in any state it is in.
class Block {
 public:
  Block(const char* tag, std::size_t size);
  ~Block();
  Block(Block&& other) noexcept
      : address_(std::exchange(other.address_, 0)), size_(other.size_), content_(std::move(other.content_)) {}
  Block& operator=(Block&&) = delete;

  CUdeviceptr address() const { return address_; }
  std::size_t size() const { return size_; }
  /// The device holds what was written last.
  bool intact() const;
  std::vector<std::uint8_t> read() const;
  void write();
  /// Another has changed the bytes: they are all `value` now.
  void expect(std::uint8_t value) { content_.assign(size_, value); }
  /// Another has added 1 to each byte.
  void expect_one_more();
  const std::vector<std::uint8_t>& content() const { return content_; }
  CUresult free();
  /// Somebody else frees it, or its memory went with its context.
  CUdeviceptr forget() { return std::exchange(address_, 0); }

 private:
  CUdeviceptr address_ = 0;
  std::size_t size_;
  std::vector<std::uint8_t> content_;
};

std::vector<Block> make_blocks(const char* tag, std::size_t count, std::size_t size);
bool intact(const std::vector<Block>& blocks);

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// The kernels of the simulated device, in the context that is current when this is made.
class Kernels {
 public:
  Kernels();
  void add_one(CUdeviceptr address, std::size_t bytes, CUstream stream) const;
  /// Without a check: what the launch answers.
  CUresult try_add_one(CUdeviceptr address, std::size_t bytes, CUstream stream) const;
  void fill_slowly(CUdeviceptr address, std::size_t bytes, std::uint8_t value, unsigned ms, CUstream stream) const;
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) const;
  /// Runs until `flag` is not 0.
  void spin_until(const std::uint32_t& flag, CUstream stream) const;

 private:
  CUfunction add_one_ = nullptr;
  CUfunction copy_ = nullptr;
  CUfunction fill_slowly_ = nullptr;
  CUfunction spin_until_ = nullptr;
};

/// Must succeed.
lowtide_report pause(const char* tag);
lowtide_report resume(const char* tag);
lowtide_tag_info info(const char* tag, int device = -1);
/// The number of blocks that carry `tag`; 0 if the tag is unknown.
std::uint64_t blocks_of(const char* tag);

lowtide_sim_live live();
/// Device bytes in use by this process.
std::uint64_t used_bytes(int device = 0);
std::size_t free_bytes();

}  // namespace hazards
