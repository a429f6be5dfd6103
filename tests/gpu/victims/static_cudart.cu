// SPDX-License-Identifier: Apache-2.0
// A CUDA program with the runtime linked statically, which knows nothing of Lowtide: random bytes in many cudaMalloc
// blocks, updated without end by kernels on two non-blocking streams, small copies both ways, and a graph captured
// before the first step. The final digests depend on the number of steps alone. Files and arguments: see rundir.py
// beside this file.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr int kThreads = 256;
constexpr int kGrid = 1056;          // eight times the multiprocessors of an H200; any number is right
constexpr int kUpdatedPerStep = 16;  // blocks touched in each step
constexpr std::size_t kMiB = 1U << 20U;

void check(cudaError_t status, const char* call, int line) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(status));
  std::_Exit(3);
}
#define CHECK(call) check((call), #call, __LINE__)

__host__ __device__ std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

__global__ void fill(std::uint64_t* words, std::size_t count, std::uint64_t seed) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    words[i] = mix(seed + i * 0x9e3779b97f4a7c15ULL);
  }
}

// Every word takes in the step and the small state that the host sent.
__global__ void update(std::uint64_t* words, std::size_t count, const std::uint64_t* state, std::uint64_t step) {
  const std::uint64_t salt = mix(*state + step);
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    words[i] = mix(words[i] + salt + i);
  }
}

// Two position-dependent sums modulo 2^64, which do not depend on the order of the additions.
__global__ void digest(const std::uint64_t* words, std::size_t count, unsigned long long* sums) {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::size_t{gridDim.x} * blockDim.x) {
    first += words[i] * (mix(i) | 1U);
    second += mix(words[i] ^ mix(i + 0x51ed270b7a3f1ULL));
  }
  atomicAdd(&sums[0], static_cast<unsigned long long>(first));
  atomicAdd(&sums[1], static_cast<unsigned long long>(second));
}

struct Options {
  std::string dir;
  std::int64_t steps = 0;
  double seconds = 900;
  double gib = 20;
  std::size_t blocks = 210;
};

Options parse(int count, char** values) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = values[i];
    if (name == "--dir") options.dir = values[i + 1];
    if (name == "--steps") options.steps = std::atoll(values[i + 1]);
    if (name == "--seconds") options.seconds = std::atof(values[i + 1]);
    if (name == "--gib") options.gib = std::atof(values[i + 1]);
    if (name == "--blocks") options.blocks = std::strtoull(values[i + 1], nullptr, 10);
  }
  if (options.dir.empty()) {
    std::fprintf(stderr, "usage: static_cudart --dir D [--steps N] [--seconds S] [--gib G] [--blocks B]\n");
    std::_Exit(2);
  }
  return options;
}

struct Block {
  std::uint64_t* words;
  std::size_t count;
};

std::vector<Block> make_blocks(const Options& options, std::size_t& total) {
  std::vector<Block> blocks;
  total = 0;
  while (static_cast<double>(total) < options.gib * 1024 * static_cast<double>(kMiB) ||
         blocks.size() < options.blocks) {
    // 40 to 160 MiB in steps of 8 bytes: sizes that are no multiple of any granularity.
    const std::size_t count = (40 * kMiB + mix(blocks.size()) % (120 * kMiB)) / 8;
    Block block{nullptr, count};
    CHECK(cudaMalloc(&block.words, count * 8));
    fill<<<kGrid, kThreads>>>(block.words, count, mix(blocks.size() + 77));
    CHECK(cudaGetLastError());
    total += count * 8;
    blocks.push_back(block);
  }
  CHECK(cudaDeviceSynchronize());
  return blocks;
}

void write_whole(const std::string& path, const std::string& text) {
  std::ofstream(path + ".part") << text;
  std::rename((path + ".part").c_str(), path.c_str());
}

std::int64_t* map_progress(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ftruncate(file, 8) != 0) std::_Exit(4);
  void* address = mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (address == MAP_FAILED) std::_Exit(4);
  return static_cast<std::int64_t*>(address);
}

// The loop's device state: two streams that take turns, a small value that travels to the host and back, a graph.
class Loop {
 public:
  explicit Loop(const std::vector<Block>& blocks) : blocks_(blocks) {
    for (auto& stream : streams_) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    CHECK(cudaMalloc(&state_, 2 * sizeof(std::uint64_t)));
    CHECK(cudaMemset(state_, 0, 2 * sizeof(std::uint64_t)));
    CHECK(cudaMallocHost(&host_, 2 * sizeof(std::uint64_t)));
    host_[0] = 1;
    host_[1] = 0;
    CHECK(cudaDeviceSynchronize());
    capture();
  }

  void step(std::int64_t number) {
    const auto index = static_cast<std::uint64_t>(number);
    CHECK(cudaMemcpyAsync(state_, host_, sizeof(std::uint64_t), cudaMemcpyHostToDevice, streams_[0]));
    CHECK(cudaEventRecord(ready_, streams_[0]));
    CHECK(cudaStreamWaitEvent(streams_[1], ready_, 0));
    for (std::uint64_t i = 0; i < kUpdatedPerStep; ++i) {
      const Block& block = blocks_[(index * kUpdatedPerStep + i) % blocks_.size()];
      update<<<kGrid, kThreads, 0, streams_[i % 2]>>>(block.words, block.count, state_, index);
      CHECK(cudaGetLastError());
    }
    CHECK(cudaEventRecord(ready_, streams_[1]));
    CHECK(cudaStreamWaitEvent(streams_[0], ready_, 0));
    CHECK(cudaGraphLaunch(graph_, streams_[0]));
    CHECK(cudaMemcpyAsync(host_ + 1, blocks_[index % blocks_.size()].words, sizeof(std::uint64_t),
                          cudaMemcpyDeviceToHost, streams_[0]));
    CHECK(cudaStreamSynchronize(streams_[0]));
    host_[0] = mix(host_[0] + host_[1]);
  }

  std::uint64_t state() const { return host_[0]; }

 private:
  // The first block takes in the state once more, and the state the first block's first word.
  void capture() {
    cudaGraph_t graph{};
    CHECK(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeGlobal));
    update<<<kGrid, kThreads, 0, streams_[0]>>>(blocks_[0].words, blocks_[0].count, state_, 12345);
    update<<<1, 1, 0, streams_[0]>>>(state_ + 1, 1, blocks_[0].words, 54321);
    CHECK(cudaMemcpyAsync(blocks_[1].words, state_ + 1, sizeof(std::uint64_t), cudaMemcpyDeviceToDevice, streams_[0]));
    CHECK(cudaStreamEndCapture(streams_[0], &graph));
    CHECK(cudaGraphInstantiate(&graph_, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }

  const std::vector<Block>& blocks_;
  cudaStream_t streams_[2]{};
  cudaEvent_t ready_{};
  cudaGraphExec_t graph_{};
  std::uint64_t* state_ = nullptr;
  std::uint64_t* host_ = nullptr;
};

std::string digests_of(const std::vector<Block>& blocks) {
  unsigned long long* sums = nullptr;
  CHECK(cudaMalloc(&sums, 2 * sizeof(unsigned long long)));
  std::string json;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    unsigned long long host[2] = {};
    CHECK(cudaMemset(sums, 0, sizeof(host)));
    digest<<<kGrid, kThreads>>>(blocks[i].words, blocks[i].count, sums);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, sums, sizeof(host), cudaMemcpyDeviceToHost));
    char text[96];
    std::snprintf(text, sizeof(text), "%s\"block_%zu\": \"%016llx%016llx\"", i == 0 ? "" : ", ", i, host[0], host[1]);
    json += text;
  }
  CHECK(cudaFree(sums));
  return json;
}

}  // namespace

int main(int count, char** values) {
  const Options options = parse(count, values);
  std::size_t total = 0;
  const std::vector<Block> blocks = make_blocks(options, total);
  Loop loop(blocks);
  volatile std::int64_t* progress = map_progress(options.dir + "/progress");
  write_whole(options.dir + "/ready", std::to_string(getpid()));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  std::int64_t steps = 0;
  while (options.steps > 0 ? steps < options.steps : access((options.dir + "/stop").c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::fprintf(stderr, "no stop after %.0f s and %lld steps\n", options.seconds, static_cast<long long>(steps));
      return 5;
    }
    loop.step(steps);
    *progress = ++steps;
  }
  CHECK(cudaDeviceSynchronize());
  char numbers[256];
  std::snprintf(
      numbers, sizeof(numbers),
      "}, \"results\": {\"state\": \"%016llx\"}, \"info\": {\"ballast_bytes\": %zu, \"ballast_blocks\": %zu}}\n",
      static_cast<unsigned long long>(loop.state()), total, blocks.size());
  write_whole(options.dir + "/result.json",
              "{\"steps\": " + std::to_string(steps) + ", \"digests\": {" + digests_of(blocks) + numbers);
  for (const Block& block : blocks) CHECK(cudaFree(block.words));
  std::printf("%lld steps\n", static_cast<long long>(steps));
  return 0;
}
