// SPDX-License-Identifier: Apache-2.0
// A program over the CUDA runtime, linked statically or not, that knows nothing of Lowtide. At each line of its stdin
// it works with its memory and checks every byte.
#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t size = (std::size_t{3} << 20) + 5;

bool fine = true;
void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorName(error));
  fine = false;
}

bool holds(const void* memory, const std::vector<unsigned char>& content) {
  std::vector<unsigned char> found(size);
  must(cudaMemcpy(found.data(), memory, size, cudaMemcpyDeviceToHost));
  return found == content;
}

void say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

}  // namespace

int main() {
  std::array<void*, 4> memory{};
  std::array<std::vector<unsigned char>, 4> content;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    content[i].resize(size);
    for (std::size_t j = 0; j < size; ++j) content[i][j] = static_cast<unsigned char>(j * (2 * i + 7) >> 3);
    must(cudaMalloc(&memory[i], size));
    must(cudaMemcpy(memory[i], content[i].data(), size, cudaMemcpyHostToDevice));
  }
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream));
  if (fine) say("ready");
  for (char line[64]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    say("begin");
    must(cudaMemsetAsync(memory[0], 0x21, size, stream));
    must(cudaMemcpyAsync(memory[1], memory[2], size, cudaMemcpyDeviceToDevice, stream));
    must(cudaStreamSynchronize(stream));
    content[0].assign(size, 0x21);
    content[1] = content[2];
    for (std::size_t i = 0; i < memory.size(); ++i) fine = holds(memory[i], content[i]) && fine;
    say(fine ? "right" : "wrong");
  }
  for (void* each : memory) must(cudaFree(each));
  must(cudaStreamDestroy(stream));
  return fine ? 0 : 1;
}
