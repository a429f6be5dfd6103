// SPDX-License-Identifier: Apache-2.0
// bench_pages [GIB]: how fast the work on pages is, through the port on device 0 (20 GiB unless said): digests, the
// fill and the scan of blank memory, beside a plain memset and copy of the driver's, and the digest by the host's
// reference on one thread. What the device says is compared with what the host says. Prints a JSON line per figure:
//   {"what": NAME, "gib_per_s": MEDIAN, "best": BEST, "repetitions": N, "bytes": BYTES OF EACH}
// LOWTIDE_TEST_DRIVER names another libcuda.so.1.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

#include "allocator/base/blank.hpp"
#include "shim/cuda_ladder.hpp"

namespace {

using namespace lowtide;

constexpr int repetitions = 7;
constexpr Bytes handle_size = 256_MiB;
constexpr Bytes sample_size = 64_MiB;

void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message());
}
void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(call) + " answered " + std::to_string(result));
}
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

void report(const char* what, Bytes bytes, const std::function<void()>& work) {
  work();
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(bytes.value) / double{1 << 30} / time.count());
  }
  std::sort(rates.begin(), rates.end());
  std::printf("{\"what\": \"%s\", \"gib_per_s\": %.2f, \"best\": %.2f, \"repetitions\": %d, \"bytes\": %llu}\n", what,
              rates[rates.size() / 2], rates.back(), repetitions, static_cast<unsigned long long>(bytes.value));
  std::fflush(stdout);
}

/// Device memory with random bytes that repeat every `sample` bytes.
class Memory {
 public:
  Memory(Backend& its_backend, Bytes size, const std::vector<std::uint64_t>& sample) : backend_(its_backend) {
    range = {must(backend_.reserve(size)), size};
    for (Bytes at; at < size; at += handle_size) {
      handles_.push_back(must(backend_.create({range.start + at, handle_size})));
      must(backend_.map({range.start + at, handle_size}, handles_.back()));
    }
    must(backend_.set_access(range, {}));
    const Bytes piece{sample.size() * sizeof sample[0]};
    for (Bytes at; at < size; at += piece) must(backend_.copy_in({range.start + at, piece}, sample.data()));
    must(backend_.finish_copies());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    (void)backend_.unmap(range);
    for (const auto handle : handles_) (void)backend_.release(handle);
    (void)backend_.release_reservation(range);
  }
  AddressRange range{};

 private:
  Backend& backend_;
  std::vector<PhysicalId> handles_;
};

void compare(const std::vector<PageDigest>& digests, const std::vector<std::uint64_t>& sample, const DigestKey& key) {
  const std::size_t pages = sample.size() * sizeof sample[0] / digest_page.value;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const auto* const page = reinterpret_cast<const char*>(sample.data()) + i % pages * digest_page.value;
    if (i < pages && digests[i] != digest_of(page, digest_page.value, key))
      throw std::runtime_error("page " + std::to_string(i) + " has another digest on the host");
    if (digests[i] != digests[i % pages]) throw std::runtime_error("two equal pages have different digests");
  }
}

void measure_device(Backend& backend, Bytes size, const std::vector<std::uint64_t>& sample) {
  const Memory memory(backend, size, sample);
  std::vector<AddressRange> pages;
  for (Bytes at; at < size; at += digest_page) pages.push_back({memory.range.start + at, digest_page});
  std::vector<PageDigest> digests(pages.size());
  report("digests by the device, whole pages", size, [&] { must(backend.digest(pages, digests)); });
  compare(digests, sample, backend.digest_key());
  // As many small tensors are: 340 KiB each.
  pages.clear();
  constexpr Bytes small = 340_KiB;
  for (Bytes at; at + small <= size; at += small) pages.push_back({memory.range.start + at, small});
  digests.resize(pages.size());
  report("digests by the device, pages of 340 KiB", small * pages.size(),
         [&] { must(backend.digest(pages, digests)); });
}

/// A copy counts what it reads, as the others count what they touch.
void measure_plain(Backend& backend, AddressRange range) {
  report("memset by the driver", range.size, [&] {
    must(backend.fill(range, 0x5a));
    must(backend.finish_copies());
  });
  const Bytes half{range.size.value / 2};
  report("copy within the device by the driver", half, [&] {
    must(backend.copy_within({range.start + half, half}, range.start));
    must(backend.finish_copies());
  });
}

void measure_blank(Backend& backend, Bytes size, const std::vector<std::uint64_t>& sample) {
  const Memory memory(backend, size, sample);
  std::vector<AddressRange> pages;
  for (Bytes at; at < size; at += digest_page) pages.push_back({memory.range.start + at, digest_page});
  std::vector<std::uint64_t> counts(pages.size());
  report("scan of memory that was written", size, [&] { must(backend.count_blank(pages, counts)); });
  if (std::any_of(counts.begin(), counts.end(), [](std::uint64_t count) { return count != 0; }))
    throw std::runtime_error("random bytes are taken for blank");
  report("fill of blank memory", size, [&] { must(backend.fill_blank(pages)); });
  report("scan of blank memory", size, [&] { must(backend.count_blank(pages, counts)); });
  if (std::any_of(counts.begin(), counts.end(), [](std::uint64_t count) { return count != digest_page.value; }))
    throw std::runtime_error("blank memory is not found");
  std::vector<char> page(digest_page.value);
  must(backend.copy_out(page.data(), pages.back()));
  must(backend.finish_copies());
  if (count_blank(page.data(), page.size(), pages.back().start.value) != page.size())
    throw std::runtime_error("the host finds other blank memory than the device");
  measure_plain(backend, memory.range);
}

void measure(Bytes size) {
  const char* path = std::getenv("LOWTIDE_TEST_DRIVER");
  void* const library = ::dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("there is no CUDA driver");
  const auto driver = must(cuda::load_driver(&::dlsym, library));
  must(driver.cuInit(0), "cuInit");
  CUcontext context = nullptr;
  must(driver.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  {
    const auto start = std::chrono::steady_clock::now();
    portable::RecreatedMemory memory;
    const auto backend =
        must(choose_backend(cuda_ladder(driver, DeviceId{0}, memory), "", {reinterpret_cast<std::uintptr_t>(context)}));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::printf("{\"what\": \"probe and attach, the kernels' translation included\", \"ms\": %.1f}\n", time.count());
    std::vector<std::uint64_t> sample(sample_size.value / sizeof(std::uint64_t));
    std::mt19937_64 random(1);
    for (auto& word : sample) word = random();
    measure_device(*backend, size, sample);
    measure_blank(*backend, size, sample);
    report("digests by the host, one thread", sample_size, [&] {
      for (Bytes at; at < sample_size; at += digest_page)
        (void)digest_of(reinterpret_cast<const char*>(sample.data()) + at.value, digest_page.value,
                        backend->digest_key());
    });
  }
  (void)driver.cuDevicePrimaryCtxRelease_v2(0);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    measure(1_GiB * (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 20));
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "bench_pages: %s\n", failed.what());
    return 2;
  }
  return 0;
}
