// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/hazards/stage.hpp"

#include <algorithm>

namespace hazards {
namespace {

constexpr unsigned kThreads = 256;

// Hand-kept for old drivers too. All kernels go over the range in steps of the whole grid; sim_fill_slowly lets a
// thread write byte i only when i/bytes of the time has gone by.
constexpr const char* kPtx = R"(
.version 6.4
.target sm_70
.address_size 64

.visible .entry sim_add_one(.param .u64 address, .param .u64 bytes)
{
  .reg .pred %done;
  .reg .b16 %h<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [address];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [bytes];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd3, %r1, %r2;
  cvt.u64.u32 %rd4, %r3;
  add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd5, %r4, %r2;
NEXT:
  setp.ge.u64 %done, %rd3, %rd2;
  @%done bra END;
  add.u64 %rd6, %rd1, %rd3;
  ld.global.u8 %h1, [%rd6];
  add.u16 %h1, %h1, 1;
  st.global.u8 [%rd6], %h1;
  add.u64 %rd3, %rd3, %rd5;
  bra NEXT;
END:
  ret;
}

.visible .entry sim_copy(.param .u64 to, .param .u64 from, .param .u64 bytes)
{
  .reg .pred %done;
  .reg .b16 %h<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [to];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd7, [from];
  cvta.to.global.u64 %rd7, %rd7;
  ld.param.u64 %rd2, [bytes];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd3, %r1, %r2;
  cvt.u64.u32 %rd4, %r3;
  add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd5, %r4, %r2;
NEXT:
  setp.ge.u64 %done, %rd3, %rd2;
  @%done bra END;
  add.u64 %rd8, %rd7, %rd3;
  ld.global.u8 %h1, [%rd8];
  add.u64 %rd6, %rd1, %rd3;
  st.global.u8 [%rd6], %h1;
  add.u64 %rd3, %rd3, %rd5;
  bra NEXT;
END:
  ret;
}

.visible .entry sim_fill_slowly(.param .u64 address, .param .u64 bytes, .param .u64 value, .param .u64 milliseconds)
{
  .reg .pred %done, %early;
  .reg .b16 %h<2>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<13>;
  mov.u64 %rd10, %globaltimer;
  ld.param.u64 %rd1, [address];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [bytes];
  ld.param.u64 %rd7, [value];
  cvt.u16.u64 %h1, %rd7;
  ld.param.u64 %rd8, [milliseconds];
  mul.lo.u64 %rd8, %rd8, 1000000;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd3, %r1, %r2;
  cvt.u64.u32 %rd4, %r3;
  add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd5, %r4, %r2;
NEXT:
  setp.ge.u64 %done, %rd3, %rd2;
  @%done bra END;
  mul.lo.u64 %rd9, %rd3, %rd8;
  div.u64 %rd9, %rd9, %rd2;
  add.u64 %rd9, %rd9, %rd10;
WAIT:
  mov.u64 %rd11, %globaltimer;
  setp.lt.u64 %early, %rd11, %rd9;
  @%early bra WAIT;
  add.u64 %rd6, %rd1, %rd3;
  st.global.u8 [%rd6], %h1;
  add.u64 %rd3, %rd3, %rd5;
  bra NEXT;
END:
  ret;
}
)";
constexpr const char* kSimulatedImage = "LOWTIDE-SIM-KERNELS";

std::uint64_t splitmix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27U) * 0x94d049bb133111ebULL;
  return x ^ x >> 31U;
}

std::vector<std::uint8_t> content(const Block& block) {
  std::vector<std::uint8_t> bytes(block.size);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) word = splitmix(block.seed * 0x100000001b3ULL + i);
    bytes[i] = static_cast<std::uint8_t>((word >> (i % 8 * 8)) + block.added);
  }
  return bytes;
}

std::string text(const char* tag) { return tag == nullptr ? "all tags" : tag; }

}  // namespace

Scope::Scope(const char* tag) {
  if (tag == nullptr) return;
  require(driver().scope_begin != nullptr, "there is no liblowtide.so");
  require(driver().scope_begin(tag) == LOWTIDE_OK, std::string("lowtide_scope_begin: ") + driver().last_error());
  entered_ = true;
}

Scope::~Scope() {
  if (entered_) driver().scope_end();
}

Stream::Stream() { must(driver().create_stream(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }
Stream::~Stream() { driver().destroy_stream(stream_); }

Stage::Stage(const Sizes& sizes) : sizes_(sizes) {
  must(driver().init(0), "cuInit");
  must(driver().primary_context(&context_, 0), "cuDevicePrimaryCtxRetain");
  use_context(context_);
  CUmodule module = nullptr;
  must(driver().load_module(&module, driver().simulated ? kSimulatedImage : kPtx), "cuModuleLoadData");
  must(driver().get_function(&add_one_, module, "sim_add_one"), "cuModuleGetFunction");
  must(driver().get_function(&copy_, module, "sim_copy"), "cuModuleGetFunction");
  must(driver().get_function(&fill_slowly_, module, "sim_fill_slowly"), "cuModuleGetFunction");
}

Block& Stage::make(const char* tag, std::size_t bytes) {
  Block block{0, bytes, next_seed_++, 0};
  {
    const Scope scope(tag);
    must(driver().allocate(&block.address, bytes), "cuMemAlloc");
  }
  blocks_.push_back(block);
  must(driver().to_device(block.address, content(block).data(), bytes), "cuMemcpyHtoD");
  return blocks_.back();
}

void Stage::make_usual(const char* tag) {
  for (std::size_t i = 0; i < sizes_.blocks; ++i) make(tag, sizes_.block_bytes / 2 * (1 + i % 3) + 513 * i + 8);
}

void Stage::free(Block& block) {
  const CUdeviceptr address = block.address;
  block.address = 0;
  must(driver().free(address), "cuMemFree");
}

void Stage::check(const Block& block) {
  if (block.address == 0) return;
  std::vector<std::uint8_t> found(block.size);
  must(driver().to_host(found.data(), block.address, block.size), "cuMemcpyDtoH");
  check(block, found);
}

void Stage::check(const Block& block, const std::vector<std::uint8_t>& found) {
  const std::vector<std::uint8_t> expected = content(block);
  const auto differing = std::mismatch(found.begin(), found.end(), expected.begin()).first - found.begin();
  require(found == expected, "byte " + std::to_string(differing) + " of a block of " + std::to_string(block.size) +
                                 " bytes is not what was written");
}

void Stage::check_all() {
  for (const Block& block : blocks_) check(block);
}

std::size_t Stage::total() const {
  std::size_t sum = 0;
  for (const Block& block : blocks_) sum += block.address == 0 ? 0 : block.size;
  return sum;
}

lowtide_report Stage::pause(const char* tag) {
  lowtide_report report{};
  report.struct_size = sizeof(report);
  require(driver().pause(tag, &report) == LOWTIDE_OK, "pausing " + text(tag) + ": " + driver().last_error());
  return report;
}

lowtide_report Stage::resume(const char* tag) {
  lowtide_report report{};
  report.struct_size = sizeof(report);
  require(driver().resume(tag, &report) == LOWTIDE_OK, "resuming " + text(tag) + ": " + driver().last_error());
  return report;
}

lowtide_tag_info Stage::info(const char* tag) {
  lowtide_tag_info info{};
  info.struct_size = sizeof(info);
  require(driver().tag_info(tag, -1, &info) == LOWTIDE_OK,
          "lowtide_get_tag_info: " + std::string(driver().last_error()));
  return info;
}

std::size_t Stage::free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  must(driver().memory_info(&free, &total), "cuMemGetInfo");
  return free;
}

void Stage::use_context(CUcontext context) { must(driver().set_context(context), "cuCtxSetCurrent"); }

void Stage::launch(CUfunction function, unsigned blocks, void** arguments, CUstream stream) {
  must(driver().launch(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
}

void Stage::add_one(const Block& block, CUstream stream) {
  std::uint64_t address = block.address;
  std::uint64_t bytes = block.size;
  void* arguments[] = {&address, &bytes};
  launch(add_one_, 64, arguments, stream);
}

void Stage::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  std::uint64_t wide_to = to;
  std::uint64_t wide_from = from;
  std::uint64_t wide_bytes = bytes;
  void* arguments[] = {&wide_to, &wide_from, &wide_bytes};
  launch(copy_, 64, arguments, stream);
}

void Stage::fill_slowly(const Block& block, std::uint8_t value, unsigned milliseconds, CUstream stream) {
  std::uint64_t address = block.address;
  std::uint64_t bytes = block.size;
  std::uint64_t wide_value = value;
  std::uint64_t wide_milliseconds = milliseconds;
  void* arguments[] = {&address, &bytes, &wide_value, &wide_milliseconds};
  launch(fill_slowly_, 1, arguments, stream);
}

void Stage::clear() {
  use_context(context_);
  if (driver().resume != nullptr) driver().resume(nullptr, nullptr);
  for (Block& block : blocks_) {
    if (block.address != 0) driver().free(block.address);
  }
  blocks_.clear();
}

Hog::Hog() {
  constexpr std::size_t kLeast = std::size_t{2} << 20U;
  for (std::size_t piece = std::size_t{16} << 30U; piece >= kLeast;) {
    CUdeviceptr address = 0;
    if (driver().allocate(&address, piece) == CUDA_SUCCESS) {
      taken_.push_back(address);
      bytes_ += piece;
    } else {
      piece /= 2;
    }
  }
}

Hog::~Hog() {
  for (const CUdeviceptr address : taken_) driver().free(address);
}

}  // namespace hazards
