// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "allocator/base/blank.hpp"
#include "allocator/base/page_digest.hpp"
#include "backends/simulated/sim_control.h"

namespace lowtide::sim {
namespace {

/// A kernel works in pieces of this size, so that memory can be taken away in between.
constexpr std::uint64_t piece = std::uint64_t{1} << 20;

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Calls write(first byte, offset, bytes) for every piece of the range; offsets are multiples of `piece`.
template <class Write>
CUresult for_each_piece(const KernelRun& run, Address address, std::uint64_t size, Write write) {
  for (std::uint64_t offset = 0; offset < size && !run.cancelled; offset += piece) {
    const auto bytes = std::min(piece, size - offset);
    const auto result = run.memory.access(run.actor, {{address + offset, bytes, true}}, [&] {
      write(reinterpret_cast<unsigned char*>(address + offset), offset, bytes);
    });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult fill_random(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  const auto seed = arguments[2];
  return for_each_piece(run, arguments[0], arguments[1], [&](unsigned char* to, std::uint64_t offset, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; i += 8) {
      const auto word = splitmix64(seed + (offset + i) / 8);
      std::memcpy(to + i, &word, std::min<std::uint64_t>(8, n - i));
    }
  });
}

CUresult add_one(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  return for_each_piece(run, arguments[0], arguments[1], [](unsigned char* to, std::uint64_t, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) to[i] = static_cast<unsigned char>(to[i] + 1);
  });
}

CUresult copy(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  const auto from = arguments[1];
  for (std::uint64_t offset = 0; offset < arguments[2] && !run.cancelled; offset += piece) {
    const auto bytes = std::min(piece, arguments[2] - offset);
    const auto to = arguments[0] + offset;
    const auto result = run.memory.access(run.actor, {{to, bytes, true}, {from + offset, bytes, false}}, [&] {
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from + offset), bytes);
    });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult fill_slowly(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  constexpr std::uint64_t steps = 64;
  const auto size = arguments[1];
  const auto value = static_cast<int>(arguments[2] & 0xff);
  const auto pause = std::chrono::microseconds(arguments[3] * 1000 / steps);
  for (std::uint64_t step = 0; step < steps && !run.cancelled; ++step) {
    const auto from = size * step / steps;
    const auto bytes = size * (step + 1) / steps - from;
    const auto result =
        for_each_piece(run, arguments[0] + from, bytes,
                       [&](unsigned char* to, std::uint64_t, std::uint64_t n) { std::memset(to, value, n); });
    if (result != CUDA_SUCCESS) return result;
    std::this_thread::sleep_for(pause);
  }
  return CUDA_SUCCESS;
}

CUresult spin_until(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  auto& flag = *reinterpret_cast<int*>(arguments[0]);
  const std::atomic_ref<int> seen(flag);
  while (seen.load(std::memory_order_acquire) == 0 && !run.cancelled) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return CUDA_SUCCESS;
}

struct Page {
  Address address;
  std::uint64_t bytes;
};

/// Calls `work(page, block)` for the page of every block of the grid; `list` is where the pages stand.
template <class Work>
CUresult for_each_page(const KernelRun& run, Address list, Work work) {
  for (std::uint64_t block = 0; block < run.blocks && !run.cancelled; ++block) {
    Page page{};
    const auto entry = list + block * sizeof page;
    auto result = run.memory.access(run.actor, {{entry, sizeof page, false}},
                                    [&] { std::memcpy(&page, reinterpret_cast<const void*>(entry), sizeof page); });
    if (result == CUDA_SUCCESS) result = work(page, block);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult digest_pages(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  return for_each_page(run, arguments[0], [&](const Page& page, std::uint64_t block) {
    const auto to = arguments[1] + block * sizeof(PageDigest);
    const auto key = arguments[2];
    return run.memory.access(
        run.actor,
        {{page.address, page.bytes, false}, {to, sizeof(PageDigest), true}, {key, sizeof(DigestKey::Tables), false}},
        [&] {
          *reinterpret_cast<PageDigest*>(to) = digest_of(reinterpret_cast<const void*>(page.address), page.bytes,
                                                         *reinterpret_cast<const DigestKey::Tables*>(key));
        });
  });
}

CUresult fill_blank_pages(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  return for_each_page(run, arguments[0], [&](const Page& page, std::uint64_t) {
    return run.memory.access(run.actor, {{page.address, page.bytes, true}},
                             [&] { fill_blank(reinterpret_cast<void*>(page.address), page.bytes, page.address); });
  });
}

CUresult count_blank_pages(const KernelRun& run, std::span<const std::uint64_t> arguments) {
  return for_each_page(run, arguments[0], [&](const Page& page, std::uint64_t block) {
    const auto to = arguments[1] + block * sizeof(std::uint64_t);
    return run.memory.access(run.actor, {{page.address, page.bytes, false}, {to, sizeof(std::uint64_t), true}}, [&] {
      *reinterpret_cast<std::uint64_t*>(to) =
          count_blank(reinterpret_cast<const void*>(page.address), page.bytes, page.address);
    });
  });
}

constexpr std::array kernels{
    Kernel{Image::tests, "sim_fill_random", 3, fill_random},
    Kernel{Image::tests, "sim_add_one", 2, add_one},
    Kernel{Image::tests, "sim_copy", 3, copy},
    Kernel{Image::tests, "sim_fill_slowly", 4, fill_slowly},
    Kernel{Image::tests, "sim_spin_until", 1, spin_until},
    Kernel{Image::page_digest, "lowtide_digest_pages", 3, digest_pages},
    Kernel{Image::blank, "lowtide_fill_blank", 1, fill_blank_pages},
    Kernel{Image::blank, "lowtide_count_blank", 2, count_blank_pages},
};

}  // namespace

std::optional<Image> recognise(const char* image) {
  constexpr std::string_view tests = LOWTIDE_SIM_IMAGE;
  if (std::strncmp(image, tests.data(), tests.size()) == 0) return Image::tests;
  // Only text is searched to its end; a binary image has none.
  if (std::strncmp(image, "//", 2) != 0) return std::nullopt;
  if (std::strstr(image, ".entry lowtide_digest_pages(") != nullptr) return Image::page_digest;
  if (std::strstr(image, ".entry lowtide_fill_blank(") != nullptr) return Image::blank;
  return std::nullopt;
}

Global global_of(Image image) {
  if (image != Image::page_digest) return {};
  return {"lowtide_digest_key", sizeof(DigestKey::Tables)};
}

const Kernel* find_kernel(Image image, std::string_view name) {
  const auto* found = std::find_if(kernels.begin(), kernels.end(),
                                   [&](const auto& kernel) { return kernel.image == image && kernel.name == name; });
  return found == kernels.end() ? nullptr : found;
}

}  // namespace lowtide::sim
