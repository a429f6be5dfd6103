// SPDX-License-Identifier: Apache-2.0
// Programs that fork and exec.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/seams.hpp"
#include "tests/hazards/victim.hpp"

extern char** environ;

namespace hazards {
namespace {

/// Runs `body` in a fork child that exits as programs do, and returns its wait status.
template <class Body>
int in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  must(child >= 0, "fork");
  if (child == 0) {
    int code = 1;
    try {
      body();
      code = 0;
    } catch (const std::exception& error) {
      say(std::string("in the child: ") + error.what());
    }
    std::exit(code);
  }
  int status = -1;
  must(::waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

/// Everything a process does with Lowtide, once.
void live_a_whole_life() {
  use_device();
  const auto blocks = make_blocks("lora", 2, 2 * mib);
  must(pause("lora").blocks == 2, "two blocks are parked");
  must(resume("lora").blocks == 2, "and come back");
  must(intact(blocks), "with their bytes");
  must(is_ok(ask(::getpid(), "hello")), "its own socket answers");
  must(number_in(ask(::getpid(), "status"), "pid") == ::getpid(), "with its own pid");
}

int open_sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += says(std::filesystem::read_symlink(entry.path(), gone).string(), "socket:") ? 1 : 0;
  }
  return count;
}

/// The child of a started process can do nothing with the GPU, and must not hang or fall over trying.
void try_everything(const Block& block, CUstream stream, const Kernels& kernels) {
  std::vector<std::uint8_t> bytes(block.size());
  CUdeviceptr address = 0;
  must(lowtide_scope_begin("weights"));
  must(cuMemAlloc(&address, 4096) != CUDA_SUCCESS, "no memory");
  must(lowtide_scope_end());
  must(cuMemcpyDtoH(bytes.data(), block.address(), bytes.size()) != CUDA_SUCCESS, "no copy");
  must(cuMemsetD8(block.address(), 0, bytes.size()) != CUDA_SUCCESS, "no memset");
  must(kernels.try_add_one(block.address(), block.size(), stream) != CUDA_SUCCESS, "no launch");
  must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS, "no capture");
  must(cuMemFree(block.address()) != CUDA_SUCCESS, "no free");
  must(cuInit(0) != CUDA_SUCCESS, "no driver");
  must(lowtide_malloc(4096, 0, nullptr) == nullptr, "no memory of the C API");
  lowtide_free(reinterpret_cast<void*>(block.address()), 0, 0, nullptr);
  lowtide_report report{sizeof report};
  must(lowtide_pause(nullptr, &report));
  must(report.blocks == 0, "nothing is paused");
  must(lowtide_resume(nullptr, &report));
  must(::access(socket_of(::getpid()).c_str(), F_OK) != 0, "no socket of its own");
  must(open_sockets() == 0, "and none of its parent's");
}

int fork_before(const Arguments&) {
  must(in_child(live_a_whole_life) == 0, "the child");
  live_a_whole_life();
  return 0;
}

int fork_after(const Arguments&) {
  use_device();
  const Kernels kernels;
  const Stream stream;
  const Block block("weights", 2 * mib);
  must(in_child([&] { try_everything(block, stream, kernels); }) == 0, "the child of an idle process");
  // While another thread is inside of Lowtide, holding whatever locks it holds.
  StopAtMapping stop(block.address(), 1);
  OtherThread pausing([] {
    use_device();
    pause("weights");
  });
  wait_until([&] { return stop.reached(); });
  must(in_child([&] { try_everything(block, stream, kernels); }) == 0, "the child in the middle of a pause");
  stop.go();
  pausing.join();
  must(::access(socket_of(::getpid()).c_str(), F_OK) == 0, "the parent's socket is still there");
  must(number_in(ask(::getpid(), "status"), "pid") == ::getpid(), "and served by the parent");
  must(resume("weights").blocks == 1, "resume");
  must(block.intact(), "intact");
  live_a_whole_life();
  return 0;
}

int fork_held(const Arguments&) {
  const auto context = use_device();
  const Kernels kernels;
  const Stream stream;
  const Block block("weights", 2 * mib);
  must(is_ok(ask(::getpid(), "pause tag=weights")), "held");
  OtherThread waiting([&] {
    must(cuCtxSetCurrent(context));
    must(block.intact(), "the bytes after the resume");
  });
  waiting.wait_until_asleep_or_done();
  must(!waiting.done(), "a copy waits at the gate");
  must(in_child([&] { try_everything(block, stream, kernels); }) == 0, "the child is not held");
  must(!waiting.done(), "the parent still is");
  must(is_ok(ask(::getpid(), "resume")), "resumed");
  waiting.join();
  return 0;
}

/// Forks while another thread makes the first GPU call of the process: it holds Lowtide's locks and has not reached the
/// driver yet.
int fork_during_first_call(const Arguments&) {
  for (std::uint64_t n = 1; n <= 8; ++n) {
    const auto parent = [n] {
      StopAtAllocation stop(n);
      OtherThread first([] { must(cuInit(0)); });
      wait_until([&] { return stop.reached(); });
      must(in_child(live_a_whole_life) == 0, "the child starts afresh");
      stop.go();
      first.join();
      live_a_whole_life();
    };
    must(in_child(parent) == 0, "the parent goes on");
  }
  return 0;
}

int simple(const Arguments&) {
  live_a_whole_life();
  return 0;
}

int exec_child(const Arguments&) {
  use_device();
  const Block block("weights", 2 * mib);
  pause("weights");
  char program[] = "/proc/self/exe";
  char role[] = "simple";
  char* arguments[] = {program, role, nullptr};
  pid_t child = -1;
  must(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0, "posix_spawn");
  int status = -1;
  must(::waitpid(child, &status, 0) == child && status == 0, "the spawned child lives a whole life");
  must(in_child([&] { ::execv("/proc/self/exe", arguments); }) == 0, "so does an exec after fork");
  resume("weights");
  must(block.intact(), "intact");
  must(is_ok(ask(::getpid(), "hello")), "the parent answers");
  // And the process itself becomes another program, under the same pid.
  ::execv("/proc/self/exe", arguments);
  return 1;
}

}  // namespace

std::vector<Role> fork_roles() {
  return {{"fork-before", fork_before}, {"fork-after", fork_after},
          {"fork-held", fork_held},     {"fork-during-first-call", fork_during_first_call},
          {"simple", simple},           {"exec-child", exec_child}};
}

}  // namespace hazards
