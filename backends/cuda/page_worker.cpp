// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/page_worker.hpp"

#include <algorithm>

#include "allocator/base/blank.hpp"
#include "allocator/base/log.hpp"
#include "backends/cuda/kernels/image.hpp"

namespace lowtide::cuda {
namespace {

/// A kernel's module and function.
Status load_kernel(const Driver& driver, const char* image, CUmodule& module, const char* name, CUfunction& kernel) {
  if (module == nullptr) {
    if (auto result = driver.cuModuleLoadData(&module, image); result != CUDA_SUCCESS)
      return fail(driver.error(result, "cuModuleLoadData"));
  }
  if (auto result = driver.cuModuleGetFunction(&kernel, module, name); result != CUDA_SUCCESS)
    return fail(driver.error(result, "cuModuleGetFunction"));
  return {};
}

}  // namespace

Result<PageWorker> PageWorker::make(const Driver& driver, const DigestKey& key) {
  PageWorker worker(driver);
  auto status = worker.load();
  if (status) status = worker.load_blank();
  if (status) status = worker.upload(key);
  if (status) status = worker.try_digest(key);
  if (status) status = worker.try_blank();
  if (status) return worker;
  worker.destroy();
  return fail(status.error());
}

void PageWorker::destroy() noexcept {
  // Work that may still run keeps what it touches: that goes with the context.
  if (stream_ != nullptr && driver_->cuStreamSynchronize(stream_) != CUDA_SUCCESS) return;
  if (stream_ != nullptr) (void)driver_->cuStreamDestroy_v2(stream_);
  if (batch_ != nullptr) (void)driver_->cuMemFreeHost(batch_);
  for (CUmodule module : {digest_module_, blank_module_}) {
    if (module != nullptr) (void)driver_->cuModuleUnload(module);
  }
  *this = PageWorker();
}

Status PageWorker::load() {
  auto status = load_kernel(*driver_, lowtide_page_digest_ptx, digest_module_, "lowtide_digest_pages", digest_);
  if (!status) return status;
  std::size_t size = 0;
  if (auto result = driver_->cuModuleGetGlobal_v2(&key_, &size, digest_module_, "lowtide_digest_key");
      result != CUDA_SUCCESS)
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

Status PageWorker::load_blank() {
  auto status = load_kernel(*driver_, lowtide_blank_ptx, blank_module_, "lowtide_fill_blank", fill_);
  if (status) status = load_kernel(*driver_, lowtide_blank_ptx, blank_module_, "lowtide_count_blank", count_);
  return status;
}

Status PageWorker::upload(const DigestKey& key) const {
  const auto& tables = key.tables();
  const auto result = driver_->cuMemcpyHtoDAsync_v2(key_, &tables, sizeof tables, stream_);
  if (result != CUDA_SUCCESS) return fail(driver_->error(result, "cuMemcpyHtoDAsync"));
  return wait();
}

Status PageWorker::try_digest(const DigestKey& key) const {
  // Where results of later pages come to lie. Whole vectors and a rest, at an address that suits the kernel best and at
  // one that does not.
  auto* const bytes = reinterpret_cast<unsigned char*>(&batch_->digests[Batch::most / 2]);
  constexpr std::size_t aligned = 40'005;
  constexpr std::size_t unaligned = 9'001;
  for (std::size_t i = 0; i < aligned; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 255);
  batch_->pages[0] = {reinterpret_cast<std::uintptr_t>(bytes), aligned};
  batch_->pages[1] = {reinterpret_cast<std::uintptr_t>(bytes + 1), unaligned};
  if (auto status = run_digest(2); !status) return status;
  const bool right = batch_->digests[0] == digest_of(bytes, aligned, key) &&
                     batch_->digests[1] == digest_of(bytes + 1, unaligned, key);
  if (!right) return fail(Code::unsupported, "the digest kernel says something else than the host");
  return {};
}

Status PageWorker::try_blank() const {
  auto* const bytes = reinterpret_cast<unsigned char*>(&batch_->digests[Batch::most / 2]);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes);
  // By pairs of words and by words, with a rest and a byte that was written.
  constexpr std::size_t paired = 40'005;
  constexpr std::size_t single = 9'003;
  const std::size_t behind = round_up(Bytes{paired}, Bytes{16}).value + 8;
  batch_->pages[0] = {address, paired};
  batch_->pages[1] = {address + behind, single};
  std::fill_n(bytes, behind + single, static_cast<unsigned char>(0));
  if (auto status = run_fill(2); !status) return status;
  bool right = lowtide::count_blank(bytes, paired, address) == paired &&
               lowtide::count_blank(bytes + behind, single, address + behind) == single;
  bytes[paired - 6] = static_cast<unsigned char>(bytes[paired - 6] + 1);
  bytes[behind + 100] = static_cast<unsigned char>(bytes[behind + 100] + 1);
  if (auto status = run_count(2); !status) return status;
  right = right && batch_->counts()[0] == lowtide::count_blank(bytes, paired, address) &&
          batch_->counts()[1] == lowtide::count_blank(bytes + behind, single, address + behind);
  if (!right) return fail(Code::unsupported, "the kernels of blank memory say something else than the host");
  return {};
}

Status PageWorker::launch(CUfunction kernel, std::size_t count, void** arguments) const {
  const auto result = driver_->cuLaunchKernel(kernel, static_cast<unsigned>(count), 1, 1, DigestKey::lanes, 1, 1, 0,
                                              stream_, arguments, nullptr);
  if (result != CUDA_SUCCESS) return fail(driver_->error(result, "cuLaunchKernel"));
  return wait();
}

Status PageWorker::run_digest(std::size_t count) const {
  const Page* pages = batch_->pages.data();
  PageDigest* digests = batch_->digests.data();
  CUdeviceptr key = key_;
  void* arguments[] = {&pages, &digests, &key};
  return launch(digest_, count, arguments);
}

Status PageWorker::run_fill(std::size_t count) const {
  const Page* pages = batch_->pages.data();
  void* arguments[] = {&pages};
  return launch(fill_, count, arguments);
}

Status PageWorker::run_count(std::size_t count) const {
  const Page* pages = batch_->pages.data();
  std::uint64_t* counts = batch_->counts();
  void* arguments[] = {&pages, &counts};
  return launch(count_, count, arguments);
}

Status PageWorker::wait() const {
  return driver_->status(driver_->cuStreamSynchronize(stream_), "cuStreamSynchronize", "after work on pages");
}

template <class Work>
Status PageWorker::in_batches(std::span<const AddressRange> pages, Work work) const {
  for (std::size_t done = 0; done < pages.size();) {
    const auto count = std::min(pages.size() - done, Batch::most);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& page = pages[done + i];
      batch_->pages[i] = {page.start.value, page.size.value};
    }
    if (auto status = work(static_cast<std::ptrdiff_t>(done), count); !status) return status;
    done += count;
  }
  return {};
}

Status PageWorker::digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) const {
  return in_batches(pages, [&](std::ptrdiff_t first, std::size_t count) {
    auto status = run_digest(count);
    if (status) std::copy_n(batch_->digests.begin(), count, digests.begin() + first);
    return status;
  });
}

Status PageWorker::fill_blank(std::span<const AddressRange> pages) const {
  return in_batches(pages, [&](std::ptrdiff_t, std::size_t count) { return run_fill(count); });
}

Status PageWorker::count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) const {
  return in_batches(pages, [&](std::ptrdiff_t first, std::size_t count) {
    auto status = run_count(count);
    if (status) std::copy_n(batch_->counts(), count, counts.begin() + first);
    return status;
  });
}

PageWorkers::PageWorkers(const Driver& driver)
    : driver_(driver), key_(0), refusal_(Code::unsupported, "no live context"), has_key_(false) {
  if (auto drawn = DigestKey::draw()) {
    key_ = *drawn;
    has_key_ = true;
  } else {
    refuse(drawn.error());
  }
}

PageWorkers::~PageWorkers() {
  for (std::size_t i = 0; i < count_; ++i) {
    const ContextGuard guard(driver_, entries_[i].context);
    if (guard.result() == CUDA_SUCCESS) entries_[i].worker.destroy();
  }
}

void PageWorkers::refuse(const Error& why) {
  refusal_ = why;
  if (!std::exchange(refused_, true)) {
    log(LogLevel::info, "pages are not worked on by the device, and every pause copies all of them: %s", why.message());
  }
}

void PageWorkers::attach(CUcontext context) {
  const std::lock_guard lock(mutex_);
  if (!has_key_ || count_ == entries_.size()) return;
  auto worker = PageWorker::make(driver_, key_);
  if (worker)
    entries_[count_++] = {context, *worker};
  else
    refuse(worker.error());
}

void PageWorkers::detach(CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto kept = std::remove_if(entries_.begin(), end, [&](const Entry& entry) { return entry.context == context; });
  count_ = static_cast<std::size_t>(kept - entries_.begin());
}

template <class Work>
Status PageWorkers::with_worker(std::span<const AddressRange> pages, Work work) {
  for (const auto& page : pages) {
    if (page.size > digest_page) {
      return fail(Error::format(Code::invalid, "a page of %llu bytes; it has at most %llu",
                                static_cast<unsigned long long>(page.size.value),
                                static_cast<unsigned long long>(digest_page.value)));
    }
  }
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return fail(Error::format(Code::unsupported, "no work on pages: %s", refusal_.message()));
  const Entry& used = entries_.front();
  const ContextGuard guard(driver_, used.context);
  // A context that ended unseen is found out before the batch, which went with it, is touched.
  if (guard.result() != CUDA_SUCCESS) return fail(driver_.error(guard.result(), "cuCtxPushCurrent"));
  if (auto idle = used.worker.wait(); !idle) return idle;
  auto status = work(used.worker);
  if (!status) unsettled_ = used.context;
  return status;
}

Status PageWorkers::digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) {
  return with_worker(pages, [&](const PageWorker& worker) { return worker.digest(pages, digests); });
}

Status PageWorkers::fill_blank(std::span<const AddressRange> pages) {
  return with_worker(pages, [&](const PageWorker& worker) { return worker.fill_blank(pages); });
}

Status PageWorkers::count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) {
  return with_worker(pages, [&](const PageWorker& worker) { return worker.count_blank(pages, counts); });
}

Status PageWorkers::settle() {
  if (unsettled_ == nullptr) return {};
  const std::lock_guard lock(mutex_);
  const auto view = std::span(entries_).first(count_);
  const auto entry =
      std::find_if(view.begin(), view.end(), [&](const Entry& each) { return each.context == unsettled_; });
  if (entry != view.end()) {
    const ContextGuard guard(driver_, entry->context);
    if (guard.result() != CUDA_SUCCESS) return fail(driver_.error(guard.result(), "cuCtxPushCurrent"));
    if (auto status = entry->worker.wait(); !status) return status;
  }
  unsettled_ = nullptr;
  return {};
}

}  // namespace lowtide::cuda
