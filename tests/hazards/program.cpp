// SPDX-License-Identifier: Apache-2.0
#include "tests/hazards/program.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>

#include "tests/hazards/control.hpp"

namespace hazards {
namespace {

std::string at_line(int line) { return " (called at line " + std::to_string(line) + ")"; }

std::vector<std::uint8_t> random_bytes(std::size_t size) {
  static std::atomic<std::uint64_t> seed{1};
  std::mt19937_64 generator(seed++);
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; i += 8) {
    const auto word = generator();
    for (std::size_t j = 0; j < 8 && i + j < size; ++j) bytes[i + j] = static_cast<std::uint8_t>(word >> (8 * j));
  }
  return bytes;
}

CUresult launch(CUfunction function, CUstream stream, std::array<std::uint64_t, 4> arguments) {
  std::array<void*, 4> parameters{&arguments[0], &arguments[1], &arguments[2], &arguments[3]};
  return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters.data(), nullptr);
}

}  // namespace

void must(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string(name == nullptr ? "unknown driver error" : name) + at_line(line));
}

void must(lowtide_result result, int line) {
  if (result == LOWTIDE_OK) return;
  throw std::runtime_error("lowtide_result " + std::to_string(result) + ": " + lowtide_last_error() + at_line(line));
}

void must(bool ok, const char* what, int line) {
  if (!ok) throw std::runtime_error(what + at_line(line));
}

CUcontext use_device(int device) {
  static std::mutex mutex;
  static std::array<CUcontext, 16> contexts{};
  const std::lock_guard lock(mutex);
  runtime_directory();
  must(cuInit(0));
  auto& context = contexts.at(static_cast<std::size_t>(device));
  if (context == nullptr) must(cuDevicePrimaryCtxRetain(&context, device));
  must(cuCtxSetCurrent(context));
  return context;
}

Current::Current(CUcontext context) {
  must(cuCtxGetCurrent(&before_));
  must(cuCtxSetCurrent(context));
}

Current::~Current() { cuCtxSetCurrent(before_); }

Scope::Scope(const char* tag) {
  if (tag == nullptr) return;
  must(lowtide_scope_begin(tag));
  begun_ = true;
}

Scope::~Scope() {
  if (begun_) lowtide_scope_end();
}

Block::Block(const char* tag, std::size_t size) : size_(size) {
  const Scope scope(tag);
  must(cuMemAlloc(&address_, size));
  write();
}

Block::~Block() {
  if (address_ != 0) cuMemFree(address_);
}

void Block::write() {
  content_ = random_bytes(size_);
  must(cuMemcpyHtoD(address_, content_.data(), size_));
}

std::vector<std::uint8_t> Block::read() const {
  std::vector<std::uint8_t> bytes(size_);
  must(cuMemcpyDtoH(bytes.data(), address_, size_));
  return bytes;
}

bool Block::intact() const { return read() == content_; }

void Block::expect_one_more() {
  for (auto& byte : content_) byte = static_cast<std::uint8_t>(byte + 1);
}

CUresult Block::free() { return cuMemFree(forget()); }

std::vector<Block> make_blocks(const char* tag, std::size_t count, std::size_t size) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.emplace_back(tag, size + i);
  return blocks;
}

bool intact(const std::vector<Block>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [](const Block& block) { return block.intact(); });
}

Stream::Stream() { must(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)); }
Stream::~Stream() { cuStreamDestroy(stream_); }

Kernels::Kernels() {
  CUmodule module = nullptr;
  must(cuModuleLoadData(&module, LOWTIDE_SIM_IMAGE));
  must(cuModuleGetFunction(&add_one_, module, "sim_add_one"));
  must(cuModuleGetFunction(&copy_, module, "sim_copy"));
  must(cuModuleGetFunction(&fill_slowly_, module, "sim_fill_slowly"));
  must(cuModuleGetFunction(&spin_until_, module, "sim_spin_until"));
}

CUresult Kernels::try_add_one(CUdeviceptr address, std::size_t bytes, CUstream stream) const {
  return launch(add_one_, stream, {address, bytes});
}

void Kernels::add_one(CUdeviceptr address, std::size_t bytes, CUstream stream) const {
  must(try_add_one(address, bytes, stream));
}

void Kernels::fill_slowly(CUdeviceptr address, std::size_t bytes, std::uint8_t value, unsigned ms,
                          CUstream stream) const {
  must(launch(fill_slowly_, stream, {address, bytes, value, ms}));
}

void Kernels::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) const {
  must(launch(copy_, stream, {to, from, bytes}));
}

void Kernels::spin_until(const std::uint32_t& flag, CUstream stream) const {
  must(launch(spin_until_, stream, {reinterpret_cast<std::uint64_t>(&flag)}));
}

lowtide_report pause(const char* tag) {
  lowtide_report report{sizeof report};
  must(lowtide_pause(tag, &report));
  return report;
}

lowtide_report resume(const char* tag) {
  lowtide_report report{sizeof report};
  must(lowtide_resume(tag, &report));
  return report;
}

lowtide_tag_info info(const char* tag, int device) {
  lowtide_tag_info info{sizeof info};
  must(lowtide_get_tag_info(tag, device, &info));
  return info;
}

std::uint64_t blocks_of(const char* tag) {
  lowtide_tag_info info{sizeof info};
  return lowtide_get_tag_info(tag, -1, &info) == LOWTIDE_OK ? info.blocks : 0;
}

lowtide_sim_live live() {
  lowtide_sim_live live{sizeof live};
  lowtide_sim_counts(&live);
  return live;
}

std::uint64_t used_bytes(int device) { return live().used_bytes[device]; }

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  must(cuMemGetInfo(&free, &total));
  return free;
}

}  // namespace hazards
