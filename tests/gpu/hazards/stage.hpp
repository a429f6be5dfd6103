// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/gpu/hazards/driver.hpp"

namespace hazards {

struct Sizes {
  std::size_t block_bytes = std::size_t{32} << 20U;  ///< of a usual block; hazards vary it
  std::size_t blocks = 8;
};

/// Device memory with known content: the bytes are a function of the seed and of how often 1 was added to each.
struct Block {
  CUdeviceptr address = 0;  ///< 0 once freed
  std::size_t size = 0;
  std::uint64_t seed = 0;
  std::uint8_t added = 0;
};

/// The calling thread's allocations carry the tag; none of it for a null name.
class Scope {
 public:
  explicit Scope(const char* tag);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool entered_ = false;
};

/// A stream that does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// What a hazard plays on: device 0, its primary context, current in the calling thread, and the blocks it made. Blocks
/// are made and freed by one thread at a time. Every member that can fail throws Failed.
class Stage {
 public:
  explicit Stage(const Sizes& sizes);

  const Sizes& sizes() const { return sizes_; }
  CUcontext context() const { return context_; }
  std::deque<Block>& blocks() { return blocks_; }

  /// A block of random bytes under `tag` (null: none). The reference stays valid until clear().
  Block& make(const char* tag, std::size_t bytes);
  /// sizes().blocks of them, of about sizes().block_bytes, none of them a multiple of a page.
  void make_usual(const char* tag);
  void free(Block& block);
  void check(const Block& block);
  /// That what was found of the block is what was written.
  static void check(const Block& block, const std::vector<std::uint8_t>& found);
  void check_all();
  std::size_t total() const;

  /// Must succeed.
  lowtide_report pause(const char* tag);
  lowtide_report resume(const char* tag);
  lowtide_tag_info info(const char* tag);
  static std::size_t free_bytes();
  static void use_context(CUcontext context);

  /// Asynchronous on `stream`, and captured if that captures: the caller counts in `block.added` how often it ran.
  void add_one(const Block& block, CUstream stream);
  /// A kernel that copies `bytes`.
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream);
  /// Writes `value` everywhere, spread over the time.
  void fill_slowly(const Block& block, std::uint8_t value, unsigned milliseconds, CUstream stream);

  /// Resumes everything and frees every block, whatever a failed hazard left behind.
  void clear();

 private:
  void launch(CUfunction function, unsigned blocks, void** arguments, CUstream stream);

  Sizes sizes_;
  CUcontext context_ = nullptr;
  CUfunction add_one_ = nullptr;
  CUfunction copy_ = nullptr;
  CUfunction fill_slowly_ = nullptr;
  std::uint64_t next_seed_ = 1;
  std::deque<Block> blocks_;
};

struct Hazard {
  const char* name;
  std::string (*run)(Stage& stage);  ///< the numbers to print
};

std::vector<Hazard> memory_hazards();
std::vector<Hazard> context_hazards();
std::vector<Hazard> work_hazards();
std::vector<Hazard> pressure_hazards();
std::vector<Hazard> paused_access_hazards();
std::vector<Hazard> door_hazards();

/// Takes what the device has left, in pieces that get smaller; gives it back when it goes.
class Hog {
 public:
  Hog();
  ~Hog();
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<CUdeviceptr> taken_;
  std::size_t bytes_ = 0;
};

/// What a copy of this program does for a hazard; -1 if `role` is none of these.
int play_role(const std::string& role, const Sizes& sizes);

}  // namespace hazards
