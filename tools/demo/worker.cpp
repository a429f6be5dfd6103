// SPDX-License-Identifier: Apache-2.0
// lowtide-demo-worker: a GPU program as a user would write it, for `lowtide demo`. It allocates through the driver's
// own functions, works on the device in the background, and does what it is told on stdin, one line a request:
//   allocate TAG BYTES SEED   blocks of at most 64 MiB with random content; TAG "-": under no scope
//   fill TAG SEED             new content
//   check TAG SEED            reads every byte back: "ok BYTES", or "error ..." with the first difference
//   work on|off               a thread that copies on the device until told to stop
//   steps                     how many copies that thread has finished
// It stands for a program outside of this project: it may use the vendor's header and lowtide.h, as any program may.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "allocator/include/lowtide/lowtide.h"

namespace {

constexpr std::size_t most_block_bytes = 64u << 20;
constexpr std::size_t staging_bytes = 8u << 20;
constexpr std::size_t scratch_bytes = 4u << 20;

void check_result(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(call) + " answered " + std::to_string(result));
}

/// The driver, looked up as programs without the CUDA runtime do.
struct Driver {
  template <class Function>
  Function* function(const char* name) const {
    auto* found = reinterpret_cast<Function*>(::dlsym(library, name));
    if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
    return found;
  }
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  decltype(::cuInit)* init = function<decltype(::cuInit)>("cuInit");
  decltype(::cuDevicePrimaryCtxRetain)* retain =
      function<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(::cuCtxSetCurrent)* set_current = function<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent");
  decltype(::cuCtxSynchronize)* synchronize = function<decltype(::cuCtxSynchronize)>("cuCtxSynchronize");
  decltype(::cuMemAlloc_v2)* allocate = function<decltype(::cuMemAlloc_v2)>("cuMemAlloc_v2");
  decltype(::cuMemcpyHtoD_v2)* to_device = function<decltype(::cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2");
  decltype(::cuMemcpyDtoH_v2)* to_host = function<decltype(::cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2");
  decltype(::cuMemcpyDtoD_v2)* on_device = function<decltype(::cuMemcpyDtoD_v2)>("cuMemcpyDtoD_v2");
};

struct Block {
  CUdeviceptr address;
  std::size_t bytes;
};

/// Random bytes that can be made again: splitmix64 (Steele, Lea, Flood 2014).
class RandomBytes {
 public:
  explicit RandomBytes(std::uint64_t seed) : state_(seed) {}
  void fill(std::vector<std::uint64_t>& words, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) {
      std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      words[i] = z ^ (z >> 31);
    }
  }

 private:
  std::uint64_t state_;
};

class Worker {
 public:
  Worker() {
    check_result(driver_.init(0), "cuInit");
    check_result(driver_.retain(&context_, 0), "cuDevicePrimaryCtxRetain");
    check_result(driver_.set_current(context_), "cuCtxSetCurrent");
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { work(false); }

  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    std::string what;
    words >> verb >> what;
    std::uint64_t number = 0;
    std::uint64_t seed = 0;
    if (verb == "allocate") return words >> number >> seed, allocate(what, number), transfer(what, seed, false);
    if (verb == "fill") return words >> seed, transfer(what, seed, false);
    if (verb == "check") return words >> seed, transfer(what, seed, true);
    if (verb == "work") return work(what == "on"), "ok";
    if (verb == "steps") return "ok " + std::to_string(steps_.load());
    throw std::runtime_error("unknown request: " + line);
  }

 private:
  void allocate(const std::string& tag, std::size_t bytes) {
    const bool scoped = tag != "-";
    if (scoped && lowtide_scope_begin(tag.c_str()) != LOWTIDE_OK) throw std::runtime_error(lowtide_last_error());
    while (bytes > 0) {
      Block block{0, std::min(bytes, most_block_bytes)};
      check_result(driver_.allocate(&block.address, block.bytes), "cuMemAlloc");
      blocks_[tag].push_back(block);
      bytes -= block.bytes;
    }
    if (scoped) lowtide_scope_end();
  }

  /// Writes the content that `seed` stands for, or compares with it.
  std::string transfer(const std::string& tag, std::uint64_t seed, bool compare) {
    RandomBytes random(seed);
    std::size_t total = 0;
    for (const Block& block : blocks_[tag]) {
      for (std::size_t done = 0; done < block.bytes; done += staging_bytes) {
        const auto count = std::min(staging_bytes, block.bytes - done);
        random.fill(expected_, count);
        if (!compare) {
          check_result(driver_.to_device(block.address + done, expected_.data(), count), "cuMemcpyHtoD");
          continue;
        }
        check_result(driver_.to_host(found_.data(), block.address + done, count), "cuMemcpyDtoH");
        if (!std::equal(expected_.begin(), expected_.begin() + static_cast<std::ptrdiff_t>(count / 8),
                        found_.begin())) {
          throw std::runtime_error("bytes of " + tag + " differ");
        }
      }
      total += block.bytes;
    }
    return "ok " + std::to_string(total);
  }

  void work(bool on) {
    working_ = on;
    if (on && !thread_.joinable()) thread_ = std::thread([this] { copy_until_told(); });
    if (!on && thread_.joinable()) thread_.join();
  }

  void copy_until_told() {
    CUdeviceptr scratch = 0;
    if (driver_.set_current(context_) != CUDA_SUCCESS ||
        driver_.allocate(&scratch, 2 * scratch_bytes) != CUDA_SUCCESS) {
      return;
    }
    while (working_) {
      if (driver_.on_device(scratch, scratch + scratch_bytes, scratch_bytes) != CUDA_SUCCESS) return;
      if (driver_.synchronize() != CUDA_SUCCESS) return;
      ++steps_;
    }
  }

  Driver driver_;
  CUcontext context_ = nullptr;
  std::map<std::string, std::vector<Block>> blocks_;
  std::vector<std::uint64_t> expected_ = std::vector<std::uint64_t>(staging_bytes / 8);
  std::vector<std::uint64_t> found_ = std::vector<std::uint64_t>(staging_bytes / 8);
  std::atomic<bool> working_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::thread thread_;
};

}  // namespace

int main() {
  try {
    Worker worker;
    std::cout << "ok ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) std::cout << worker.obey(line) << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cout << "error " << error.what() << std::endl;
    return 1;
  }
}
