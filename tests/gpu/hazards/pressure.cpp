// SPDX-License-Identifier: Apache-2.0
// Many threads, a full device, and other processes.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/hazards/stage.hpp"

namespace hazards {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20U;

// A copy of this program in a role, without the preload unless it is wanted. Ends when its stdin does.
class Copy {
 public:
  Copy(const char* role, const Sizes& sizes, bool preloaded) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    require(pipe(in.data()) == 0 && pipe(out.data()) == 0, "no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
      if (!preloaded) unsetenv("LD_PRELOAD");
      const std::string mib = std::to_string(sizes.block_bytes / kMib);
      const std::string blocks = std::to_string(sizes.blocks);
      execl("/proc/self/exe", "gpu_hazards", "--role", role, "--mib", mib.c_str(), "--blocks", blocks.c_str(), nullptr);
      _exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    stdout_ = out[0];
    require(pid_ > 0, "no fork");
  }
  ~Copy() { finish(); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  // The next line that it prints; "" if it ended.
  std::string line() const {
    std::string text;
    char byte = 0;
    while (read(stdout_, &byte, 1) == 1 && byte != '\n') text += byte;
    return text;
  }
  // Its exit status, as waitpid gives it.
  int finish() {
    if (pid_ <= 0) return status_;
    ::close(stdin_);
    waitpid(pid_, &status_, 0);
    ::close(stdout_);
    pid_ = -1;
    return status_;
  }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  int stdout_ = -1;
  int status_ = -1;
};

// One thread of eight: allocates and frees under a tag that is paused and resumed all the while, without touching that
// memory, and keeps an untagged block of its own whose bytes must stay.
void churn(const Stage& stage, unsigned number, const std::atomic<bool>& stop, std::atomic<int>& done,
           std::atomic<int>& failed) {
  driver().set_context(stage.context());
  const auto value = static_cast<unsigned char>(0x10 + number);
  const std::size_t own_bytes = kMib + number;
  CUdeviceptr own = 0;
  if (driver().allocate(&own, own_bytes) != CUDA_SUCCESS) ++failed;
  if (driver().set_bytes(own, value, own_bytes) != CUDA_SUCCESS) ++failed;
  for (unsigned round = 0; !stop; ++round) {
    std::array<CUdeviceptr, 4> addresses{};
    {
      const Scope scope(number % 2 == 0 ? "weights" : "lora");
      for (std::size_t i = 0; i < addresses.size(); ++i) {
        const std::size_t bytes = (i + 1) * (round % 7 + 1) * 100'000 + number;
        if (driver().allocate(&addresses[i], bytes) != CUDA_SUCCESS) ++failed;
      }
    }
    for (const CUdeviceptr address : addresses) {
      if (driver().free(address) != CUDA_SUCCESS) ++failed;
    }
    ++done;
  }
  std::vector<unsigned char> found(own_bytes);
  if (driver().to_host(found.data(), own, own_bytes) != CUDA_SUCCESS) ++failed;
  if (found != std::vector<unsigned char>(own_bytes, value)) ++failed;
  if (driver().free(own) != CUDA_SUCCESS) ++failed;
}

std::string eight_threads_allocate_and_free_while_tags_pause_and_resume(Stage& stage) {
  constexpr int kRounds = 15;
  stage.make_usual("weights");
  stage.make_usual("lora");
  std::atomic<bool> stop{false};
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 8; ++i) threads.emplace_back([&, i] { churn(stage, i, stop, done, failed); });
  std::string trouble;
  for (int round = 0; round < kRounds && trouble.empty(); ++round) {
    const char* tag = round % 3 == 0 ? "weights" : round % 3 == 1 ? "lora" : nullptr;
    if (driver().pause(tag, nullptr) != LOWTIDE_OK) trouble = std::string("pause: ") + driver().last_error();
    if (driver().resume(nullptr, nullptr) != LOWTIDE_OK) trouble += std::string(" resume: ") + driver().last_error();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  require(trouble.empty(), trouble);
  require(failed == 0, std::to_string(failed) + " calls or bytes were wrong");
  stage.check_all();
  const std::uint64_t left = stage.info("weights").blocks + stage.info("lora").blocks;
  require(left == stage.blocks().size(),
          std::to_string(left) + " blocks are left of " + std::to_string(stage.blocks().size()));
  return std::to_string(done * 4) + " allocations, " + std::to_string(kRounds) + " pauses";
}

std::string pause_with_no_free_device_byte(Stage& stage) {
  stage.make_usual("weights");
  std::size_t left = 0;
  std::size_t freed = 0;
  {
    const Hog hog;
    left = Stage::free_bytes();
    stage.pause("weights");
    freed = Stage::free_bytes() - left;
    stage.resume("weights");
  }
  stage.check_all();
  return std::to_string(left / 1024) + " KiB were free, the pause freed " + std::to_string(freed / kMib) + " MiB";
}

std::string out_of_device_memory_on_resume_then_room(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  Copy holder("hold", stage.sizes(), false);
  const std::string held = holder.line();
  require(held.rfind("held", 0) == 0, "the other process said '" + held + "'");
  const lowtide_result result = driver().resume("weights", nullptr);
  const std::string message = driver().last_error();
  require(result == LOWTIDE_ERROR_DEVICE_MEMORY, "the resume answered " + std::to_string(result) + ": " + message);
  const lowtide_tag_info info = stage.info("weights");
  require(info.bytes_resident == 0 && info.bytes_parked == stage.total(),
          "the refused resume left " + std::to_string(info.bytes_resident) + " bytes resident");
  require(holder.finish() == 0, "the other process did not end well");
  // A driver may hand back a dead process's memory a little later.
  for (int i = 0; i < 100 && Stage::free_bytes() < stage.total() * 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  stage.resume("weights");
  stage.check_all();
  return "the other " + held + "; " + message;
}

std::string exit_while_paused(Stage& stage) {
  Copy copy("exit-paused", stage.sizes(), true);
  const std::string line = copy.line();
  const int status = copy.finish();
  require(line == "paused" && status == 0, "it said '" + line + "' and ended with status " + std::to_string(status));
  return "exit status 0";
}

// A kernel of its own that writes to a readable parked block, which ends the context's life; then the bytes, which the
// host reads without it.
int write_parked(Stage& stage) {
  must(driver().set("tag.lora.paused_access", "host") == LOWTIDE_OK ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "lowtide_set");
  const Stream stream;
  const Block& block = stage.make("lora", stage.sizes().block_bytes);
  stage.pause("lora");
  stage.add_one(block, stream.get());
  const CUresult result = driver().synchronize_stream(stream.get());
  std::vector<std::uint8_t> found(block.size);
  const void* address = reinterpret_cast<const void*>(block.address);
  require(driver().read_paused(address, found.data(), found.size()) == LOWTIDE_OK, driver().last_error());
  Stage::check(block, found);
  std::puts(name_of(result).c_str());
  return 0;
}

std::string a_kernel_that_writes_to_a_readable_parked_block_fails(Stage& stage) {
  Copy copy("write-parked", stage.sizes(), true);
  const std::string line = copy.line();
  const int status = copy.finish();
  require(status == 0 && line.rfind("CUDA_ERROR_", 0) == 0,
          "it said '" + line + "' and ended with status " + std::to_string(status));
  return line;
}

// Everything the device has, until stdin ends.
int hold() {
  const Hog hog;
  std::printf("held %zu MiB\n", hog.bytes() / kMib);
  std::fflush(stdout);
  char byte = 0;
  while (read(0, &byte, 1) == 1) continue;
  return 0;
}

}  // namespace

int play_role(const std::string& role, const Sizes& sizes) {
  if (role != "hold" && role != "exit-paused" && role != "write-parked") return -1;
  Stage stage(sizes);
  if (role == "hold") return hold();
  if (role == "write-parked") return write_parked(stage);
  stage.make_usual("weights");
  stage.pause("weights");
  std::puts("paused");
  return 0;
}

std::vector<Hazard> pressure_hazards() {
  return {
      {"eight_threads_allocate_and_free_while_tags_pause_and_resume",
       eight_threads_allocate_and_free_while_tags_pause_and_resume},
      {"pause_with_no_free_device_byte", pause_with_no_free_device_byte},
      {"out_of_device_memory_on_resume_then_room", out_of_device_memory_on_resume_then_room},
      {"a_kernel_that_writes_to_a_readable_parked_block_fails", a_kernel_that_writes_to_a_readable_parked_block_fails},
      {"exit_while_paused", exit_while_paused}};
}

}  // namespace hazards
