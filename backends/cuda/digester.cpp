// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/digester.hpp"

#include <algorithm>

#include "allocator/base/log.hpp"
#include "backends/cuda/kernels/image.hpp"

namespace lowtide::cuda {
namespace {

constexpr const char* kernel_name = "lowtide_digest_pages";
constexpr const char* key_name = "lowtide_digest_key";

}  // namespace

Result<Digester> Digester::make(const Driver& driver, const DigestKey& key) {
  Digester digester(driver);
  auto status = digester.load();
  if (status) status = digester.upload(key);
  if (status) status = digester.try_out(key);
  if (status) return digester;
  digester.destroy();
  return fail(status.error());
}

void Digester::destroy() noexcept {
  // Work that may still run keeps what it touches: that goes with the context.
  if (stream_ != nullptr && driver_->cuStreamSynchronize(stream_) != CUDA_SUCCESS) return;
  if (stream_ != nullptr) (void)driver_->cuStreamDestroy_v2(stream_);
  if (batch_ != nullptr) (void)driver_->cuMemFreeHost(batch_);
  if (module_ != nullptr) (void)driver_->cuModuleUnload(module_);
  *this = Digester();
}

Status Digester::load() {
  if (auto result = driver_->cuModuleLoadData(&module_, lowtide_page_digest_ptx); result != CUDA_SUCCESS)
    return fail(driver_->error(result, "cuModuleLoadData"));
  if (auto result = driver_->cuModuleGetFunction(&kernel_, module_, kernel_name); result != CUDA_SUCCESS)
    return fail(driver_->error(result, "cuModuleGetFunction"));
  std::size_t size = 0;
  if (auto result = driver_->cuModuleGetGlobal_v2(&key_, &size, module_, key_name); result != CUDA_SUCCESS)
    return fail(driver_->error(result, "cuModuleGetGlobal"));
  if (size != sizeof(DigestKey::Tables)) {
    return fail(Error::format(Code::unsupported, "the digest kernel's key has %zu bytes instead of %zu", size,
                              sizeof(DigestKey::Tables)));
  }
  if (auto result = driver_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING); result != CUDA_SUCCESS)
    return fail(driver_->error(result, "cuStreamCreate"));
  void* memory = nullptr;
  const auto result = driver_->cuMemHostAlloc(&memory, sizeof(Batch), CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) return fail(driver_->error(result, "cuMemHostAlloc"));
  batch_ = static_cast<Batch*>(memory);
  return {};
}

Status Digester::upload(const DigestKey& key) const {
  const auto& tables = key.tables();
  const auto result = driver_->cuMemcpyHtoDAsync_v2(key_, &tables, sizeof tables, stream_);
  if (result != CUDA_SUCCESS) return fail(driver_->error(result, "cuMemcpyHtoDAsync"));
  return wait();
}

Status Digester::try_out(const DigestKey& key) const {
  // Where results of later pages come to lie. Whole vectors and a rest, at an address that suits the kernel best and at
  // one that does not.
  auto* const bytes = reinterpret_cast<unsigned char*>(&batch_->digests[Batch::most / 2]);
  constexpr std::size_t aligned = 40'005;
  constexpr std::size_t unaligned = 9'001;
  for (std::size_t i = 0; i < aligned; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 255);
  batch_->pages[0] = {reinterpret_cast<std::uintptr_t>(bytes), aligned};
  batch_->pages[1] = {reinterpret_cast<std::uintptr_t>(bytes + 1), unaligned};
  if (auto status = run(2); !status) return status;
  const bool right = batch_->digests[0] == digest_of(bytes, aligned, key) &&
                     batch_->digests[1] == digest_of(bytes + 1, unaligned, key);
  if (!right) return fail(Code::unsupported, "the digest kernel says something else than the host");
  return {};
}

Status Digester::run(std::size_t count) const {
  const Page* pages = batch_->pages.data();
  PageDigest* digests = batch_->digests.data();
  CUdeviceptr key = key_;
  void* arguments[] = {&pages, &digests, &key};
  const auto result = driver_->cuLaunchKernel(kernel_, static_cast<unsigned>(count), 1, 1, DigestKey::lanes, 1, 1, 0,
                                              stream_, arguments, nullptr);
  if (result != CUDA_SUCCESS) return fail(driver_->error(result, "cuLaunchKernel"));
  return wait();
}

Status Digester::wait() const {
  return driver_->status(driver_->cuStreamSynchronize(stream_), "cuStreamSynchronize", "after a digest");
}

Status Digester::digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) const {
  for (std::size_t done = 0; done < pages.size();) {
    const auto count = std::min(pages.size() - done, Batch::most);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& page = pages[done + i];
      batch_->pages[i] = {page.start.value, page.size.value};
    }
    if (auto status = run(count); !status) return status;
    std::copy_n(batch_->digests.begin(), count, digests.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
  return {};
}

Digesters::Digesters(const Driver& driver)
    : driver_(driver), key_(0), refusal_(Code::unsupported, "no live context"), has_key_(false) {
  if (auto drawn = DigestKey::draw()) {
    key_ = *drawn;
    has_key_ = true;
  } else {
    refuse(drawn.error());
  }
}

Digesters::~Digesters() {
  for (std::size_t i = 0; i < count_; ++i) {
    const ContextGuard guard(driver_, entries_[i].context);
    if (guard.result() == CUDA_SUCCESS) entries_[i].digester.destroy();
  }
}

void Digesters::refuse(const Error& why) {
  refusal_ = why;
  if (!std::exchange(refused_, true)) {
    log(LogLevel::info, "pages get no digests, every pause copies all of them: %s", why.message());
  }
}

void Digesters::attach(CUcontext context) {
  const std::lock_guard lock(mutex_);
  if (!has_key_ || count_ == entries_.size()) return;
  auto digester = Digester::make(driver_, key_);
  if (digester)
    entries_[count_++] = {context, *digester};
  else
    refuse(digester.error());
}

void Digesters::detach(CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto kept = std::remove_if(entries_.begin(), end, [&](const Entry& entry) { return entry.context == context; });
  count_ = static_cast<std::size_t>(kept - entries_.begin());
}

Status Digesters::digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) {
  for (const auto& page : pages) {
    if (page.size > digest_page) {
      return fail(Error::format(Code::invalid, "a digest of %llu bytes; it covers at most %llu",
                                static_cast<unsigned long long>(page.size.value),
                                static_cast<unsigned long long>(digest_page.value)));
    }
  }
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return fail(Error::format(Code::unsupported, "no digests: %s", refusal_.message()));
  const Entry& used = entries_.front();
  const ContextGuard guard(driver_, used.context);
  // A context that ended unseen is found out before the batch, which went with it, is touched.
  if (guard.result() != CUDA_SUCCESS) return fail(driver_.error(guard.result(), "cuCtxPushCurrent"));
  if (auto idle = used.digester.wait(); !idle) return idle;
  auto status = used.digester.digest(pages, digests);
  if (!status) unsettled_ = used.context;
  return status;
}

Status Digesters::settle() {
  if (unsettled_ == nullptr) return {};
  const std::lock_guard lock(mutex_);
  const auto view = std::span(entries_).first(count_);
  const auto entry =
      std::find_if(view.begin(), view.end(), [&](const Entry& each) { return each.context == unsettled_; });
  if (entry != view.end()) {
    const ContextGuard guard(driver_, entry->context);
    if (guard.result() != CUDA_SUCCESS) return fail(driver_.error(guard.result(), "cuCtxPushCurrent"));
    if (auto status = entry->digester.wait(); !status) return status;
  }
  unsettled_ = nullptr;
  return {};
}

}  // namespace lowtide::cuda
