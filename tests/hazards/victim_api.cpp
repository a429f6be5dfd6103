// SPDX-License-Identifier: Apache-2.0
// The C API before the first GPU call, without any preload, and the first call of a process that has no host memory.
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/seams.hpp"
#include "tests/hazards/victim.hpp"

namespace hazards {
namespace {

void expect(lowtide_result result, lowtide_result expected, const char* what) {
  must(result == expected, (std::string(what) + " answers " + std::to_string(result)).c_str());
  if (expected != LOWTIDE_OK) must(std::strlen(lowtide_last_error()) > 10, "there is a sentence about it");
}

/// Calls about updates that can never be right.
void wrong_updates() {
  for (const char* tag : {static_cast<const char*>(nullptr), "not a tag", "nobodys"}) {
    expect(lowtide_begin_update(tag, 1), LOWTIDE_ERROR_INVALID, "begin_update");
    expect(lowtide_commit_update(tag, 1), LOWTIDE_ERROR_INVALID, "commit_update");
    expect(lowtide_abort_update(tag), LOWTIDE_ERROR_INVALID, "abort_update");
    expect(lowtide_mark_valid(tag, 1), LOWTIDE_ERROR_INVALID, "mark_valid");
    expect(lowtide_drop_backup(tag), LOWTIDE_ERROR_INVALID, "drop_backup");
  }
}

int before_first_call(const Arguments&) {
  char byte = 0;
  lowtide_tag_info found{sizeof found};
  lowtide_report report{sizeof report};
  report.blocks = 99;
  must(std::strcmp(lowtide_last_error(), "") == 0, "no error yet");
  expect(lowtide_pause(nullptr, &report), LOWTIDE_OK, "pause");
  must(report.blocks == 0 && report.device_count == 0, "the report says that nothing was done");
  expect(lowtide_resume("weights", nullptr), LOWTIDE_OK, "resume");
  expect(lowtide_pause("not a tag", nullptr), LOWTIDE_ERROR_INVALID, "pause of no tag");
  expect(lowtide_scope_end(), LOWTIDE_ERROR_INVALID, "scope_end without begin");
  expect(lowtide_scope_begin(nullptr), LOWTIDE_ERROR_INVALID, "scope_begin of nothing");
  expect(lowtide_get_tag_info("weights", -1, &found), LOWTIDE_ERROR_INVALID, "tag_info");
  expect(lowtide_read_paused(&byte, &byte, 1), LOWTIDE_ERROR_INVALID, "read_paused");
  expect(lowtide_write_paused(&byte, &byte, 1), LOWTIDE_ERROR_INVALID, "write_paused");
  const void* host = nullptr;
  std::size_t bytes = 0;
  expect(lowtide_view_paused(&byte, &host, &bytes), LOWTIDE_ERROR_INVALID, "view_paused");
  expect(lowtide_view_paused(&byte, nullptr, &bytes), LOWTIDE_ERROR_INVALID, "view_paused into nothing");
  std::uint64_t given_back = 99;
  expect(lowtide_trim(&given_back), LOWTIDE_OK, "trim");
  must(given_back == 0, "there is nothing to give back");
  expect(lowtide_trim(nullptr), LOWTIDE_OK, "trim");
  expect(lowtide_set("tag.mine.puase", "keep"), LOWTIDE_ERROR_CONFIG, "set of an unknown key");
  expect(lowtide_set("tag.mine.pause", "kept"), LOWTIDE_ERROR_CONFIG, "set to a bad value");
  expect(lowtide_set("tag.mine.pause", "keep"), LOWTIDE_OK, "set");
  wrong_updates();
  lowtide_free(nullptr, 0, 0, nullptr);
  must(lowtide_malloc(0, 0, nullptr) == nullptr, "malloc of nothing");
  must(lowtide_malloc(-1, 0, nullptr) == nullptr, "malloc of less than nothing");

  // A scope that was begun before the driver was there holds for the first allocation.
  expect(lowtide_scope_begin("mine"), LOWTIDE_OK, "scope_begin");
  use_device();
  const Block block(nullptr, 2 * mib);
  expect(lowtide_scope_end(), LOWTIDE_OK, "scope_end");
  must(info("mine").bytes_resident == 2 * mib, "the block carries the tag");
  must(pause("mine").bytes_kept == 2 * mib, "the setting of before is in force");
  must(block.intact(), "intact");
  return 0;
}

int struct_sizes(const Arguments&) {
  use_device();
  const Block block("weights", 2 * mib);
  // The header of an older program ended after `blocks`.
  struct OldReport {
    std::size_t struct_size;
    std::uint64_t bytes_parked;
    std::uint64_t bytes_discarded;
    std::uint64_t bytes_kept;
    std::uint64_t blocks;
    std::uint64_t behind;
  };
  OldReport old{offsetof(OldReport, behind), 1, 1, 1, 1, 0x1234};
  expect(lowtide_pause("weights", reinterpret_cast<lowtide_report*>(&old)), LOWTIDE_OK, "pause");
  must(old.bytes_parked == 2 * mib && old.blocks == 1, "it learns what it has room for");
  must(old.struct_size == offsetof(OldReport, behind), "its size stays");
  must(old.behind == 0x1234, "nothing is written behind it");
  lowtide_report none{};
  expect(lowtide_resume("weights", &none), LOWTIDE_ERROR_INVALID, "a report without a size");
  must(info("weights").bytes_parked == 2 * mib, "nothing was resumed");
  struct NewInfo {
    lowtide_tag_info info;
    std::uint64_t later;
  };
  NewInfo newer{{sizeof newer}, 0x5678};
  expect(lowtide_get_tag_info("weights", 0, &newer.info), LOWTIDE_OK, "tag_info");
  must(newer.info.blocks == 1 && newer.later == 0x5678, "a newer struct keeps what we do not know");
  resume(nullptr);
  return 0;
}

/// NULL, and numbers that mean nothing, where a pointer or a device is wanted: of a block that is parked, so that
/// nothing else stands in the way.
int wrong_arguments(const Arguments&) {
  use_device();
  Block block("weights", 2 * mib);
  pause("weights");
  auto* const address = reinterpret_cast<void*>(block.address());
  std::uint8_t byte = 0;
  const void* host = nullptr;
  std::size_t bytes = 0;
  expect(lowtide_read_paused(address, nullptr, 16), LOWTIDE_ERROR_INVALID, "read_paused to NULL");
  expect(lowtide_write_paused(address, nullptr, 16), LOWTIDE_ERROR_INVALID, "write_paused from NULL");
  expect(lowtide_read_paused(address, nullptr, 0), LOWTIDE_OK, "read_paused of nothing");
  expect(lowtide_write_paused(address, nullptr, 0), LOWTIDE_OK, "write_paused of nothing");
  expect(lowtide_read_paused(nullptr, &byte, 1), LOWTIDE_ERROR_INVALID, "read_paused of NULL");
  expect(lowtide_write_paused(nullptr, &byte, 1), LOWTIDE_ERROR_INVALID, "write_paused of NULL");
  expect(lowtide_read_paused(address, &byte, SIZE_MAX), LOWTIDE_ERROR_INVALID, "read_paused of all memory");
  expect(lowtide_view_paused(nullptr, &host, &bytes), LOWTIDE_ERROR_INVALID, "view_paused of NULL");
  expect(lowtide_view_paused(address, nullptr, &bytes), LOWTIDE_ERROR_INVALID, "view_paused without a pointer");
  expect(lowtide_view_paused(address, &host, nullptr), LOWTIDE_ERROR_INVALID, "view_paused without a size");
  lowtide_tag_info found{sizeof found};
  expect(lowtide_get_tag_info(nullptr, -1, &found), LOWTIDE_ERROR_INVALID, "tag_info of NULL");
  expect(lowtide_get_tag_info("weights", -1, nullptr), LOWTIDE_ERROR_INVALID, "tag_info into NULL");
  expect(lowtide_get_tag_info("weights", 0, &found), LOWTIDE_OK, "tag_info of a device");
  expect(lowtide_get_tag_info("weights", -1, &found), LOWTIDE_OK, "tag_info of all devices");
  for (const int device : {-2, INT_MIN, 1, INT_MAX}) {
    expect(lowtide_get_tag_info("weights", device, &found), LOWTIDE_ERROR_INVALID, "tag_info of no device");
  }
  expect(lowtide_set(nullptr, "keep"), LOWTIDE_ERROR_INVALID, "set of NULL");
  expect(lowtide_set("tag.mine.pause", nullptr), LOWTIDE_ERROR_INVALID, "set to NULL");
  expect(lowtide_scope_begin(nullptr), LOWTIDE_ERROR_INVALID, "scope_begin of NULL");
  for (const int device : {-1, INT_MIN, INT_MAX}) {
    must(lowtide_malloc(4096, device, nullptr) == nullptr, "malloc on no device");
    must(std::strlen(lowtide_last_error()) > 10, "there is a sentence about it");
  }
  wrong_updates();
  lowtide_free(nullptr, 1, -1, nullptr);
  expect(lowtide_resume(nullptr, nullptr), LOWTIDE_OK, "resume without a report");
  must(block.intact(), "intact");
  return 0;
}

bool holds(const void* memory, std::uint8_t value, std::size_t size) {
  std::vector<std::uint8_t> found(size);
  must(cuMemcpyDtoH(found.data(), reinterpret_cast<CUdeviceptr>(memory), size));
  return found == std::vector<std::uint8_t>(size, value);
}

/// lowtide_malloc and lowtide_free as PyTorch's pluggable allocator calls them.
int pluggable(const Arguments& arguments) {
  const bool managed = arguments.at(0) == "managed";
  must(lowtide_scope_begin("weights"));
  void* first = lowtide_malloc(static_cast<ssize_t>(3 * mib), 0, nullptr);  // before any call of the driver
  void* on_1 = lowtide_malloc(static_cast<ssize_t>(2 * mib), 1, nullptr);
  must(lowtide_scope_end());
  must(first != nullptr && on_1 != nullptr, lowtide_last_error());
  must(lowtide_malloc(4096, 7, nullptr) == nullptr, "there is no device 7");
  CUcontext none = nullptr;
  must(cuCtxGetCurrent(&none));
  must(none == nullptr, "the thread's context is as it was");
  use_device();
  must(cuMemsetD8(reinterpret_cast<CUdeviceptr>(first), 0x11, 3 * mib));
  must(cuMemsetD8(reinterpret_cast<CUdeviceptr>(on_1), 0x22, 2 * mib));
  must(pause("weights").blocks == (managed ? 2 : 0), "pause");
  must(resume("weights").blocks == (managed ? 2 : 0), "resume");
  must(holds(first, 0x11, 3 * mib) && holds(on_1, 0x22, 2 * mib), "every byte is back");
  OtherThread freeing([&] {
    lowtide_free(first, static_cast<ssize_t>(3 * mib), 0, nullptr);
    lowtide_free(on_1, 0, 1, nullptr);
  });
  freeing.join();
  must(used_bytes(0) == 0 && used_bytes(1) == 0, "everything is free");
  return 0;
}

/// The program resets a device whose primary context lowtide_malloc uses too.
int pluggable_after_reset(const Arguments&) {
  must(lowtide_scope_begin("weights"));
  must(lowtide_malloc(4096, 0, nullptr) != nullptr, lowtide_last_error());
  must(cuDevicePrimaryCtxReset(0));
  for (const char* tag : {"weights", "lora"}) {
    must(lowtide_scope_begin(tag));
    void* again = lowtide_malloc(static_cast<ssize_t>(2 * mib), 0, nullptr);
    must(again != nullptr, lowtide_last_error());
    use_device();
    must(cuMemsetD8(reinterpret_cast<CUdeviceptr>(again), 0x33, 2 * mib));
    must(pause(tag).bytes_parked >= 2 * mib, "pause");
    resume(tag);
    must(holds(again, 0x33, 2 * mib), "every byte is back");
    must(cuCtxSetCurrent(nullptr));
  }
  return 0;
}

/// Where nothing can be paused, a program that pauses goes on as before, and is told what was kept.
int pausing_is_off(const Arguments&) {
  use_device();
  const auto used = used_bytes();
  {
    Block weights("weights", 3 * mib);
    Block cache("kv_cache", 100 * kib);
    const auto free = free_bytes();
    for (int round = 0; round < 2; ++round) {
      const auto report = pause(nullptr);
      must(report.bytes_kept == 3 * mib + 100 * kib, "all is kept");
      must(report.bytes_parked == 0 && report.bytes_discarded == 0 && report.blocks == 0, "and nothing changed");
      must(free_bytes() == free, "no memory came free");
      must(weights.intact() && cache.intact(), "the bytes are there during the pause");
      weights.write();
      must(says(ask(::getpid(), "status"), R"("backend":"off")"), "status names it");
      must(info("weights").bytes_resident == 3 * mib && info("kv_cache").blocks == 1, "tagged all the same");
      must(resume(nullptr).blocks == 0, "there is nothing to bring back");
      must(weights.intact() && cache.intact(), "the bytes are there after it");
    }
    CUipcMemHandle handle{};
    must(cuIpcGetMemHandle(&handle, weights.address()));
    must(pause(nullptr).bytes_kept > 0, "what others have a handle of is kept as all the rest");
    const auto held = ask(::getpid(), "pause");
    must(is_ok(held) && number_in(held, "bytes_kept") > 0 && number_in(held, "blocks") == 0, "a hold keeps all too");
    must(is_ok(ask(::getpid(), "resume")), "and ends with a resume");
    must(weights.intact() && cache.intact(), "which opens the gate");
  }
  must(used_bytes() == used, "frees reach the driver");
  return 0;
}

int left_alone(const Arguments&) {
  use_device();
  Block block("weights", 2 * mib);
  must(blocks_of("weights") == 0 && live().mappings == 0, "the block is the driver's own");
  must(pause(nullptr).blocks == 0, "nothing can be parked");
  must(block.intact(), "and nothing is lost");
  return 0;
}

/// Without virtual memory management, memory is freed and allocated again.
int recreated(const Arguments&) {
  use_device();
  Block block("weights", 66 * mib);
  must(live().mappings == 0, "plain memory");
  const auto used = used_bytes();
  must(pause("weights").blocks == 1, "parked");
  must(used_bytes() <= used - 66 * mib, "its memory came free");
  must(resume("weights").blocks == 1, "resumed");
  must(block.intact(), "at its address, with its bytes");
  must(info("weights").addresses_are_stable == 0, "which is not certain");
  CUipcMemHandle handle{};
  must(cuIpcGetMemHandle(&handle, block.address()));
  must(lowtide_pause("weights", nullptr) == LOWTIDE_ERROR_REFUSED, "others may have the memory open");
  must(says(lowtide_last_error(), "cuIpcGetMemHandle"), "the refusal names the call");
  must(block.intact(), "and changes nothing");
  return 0;
}

/// The first GPU calls of the process, with the nth allocation of liblowtide.so failing. True if that was met.
bool begin_short_of_memory(std::uint64_t n) {
  bool met = false;
  {
    const FailingMemory failing(n);
    use_device();
    const bool scoped = lowtide_scope_begin("weights") == LOWTIDE_OK;
    CUdeviceptr address = 0;
    const auto result = cuMemAlloc(&address, 2 * mib);
    must(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY, "an answer that programs know");
    if (scoped) must(lowtide_scope_end());
    met = failing.failed();
    if (result == CUDA_SUCCESS) must(cuMemFree(address));
  }
  // The next block works, managed or not.
  Block block("weights", 2 * mib);
  lowtide_report report{sizeof report};
  must(lowtide_pause(nullptr, &report));
  must(report.blocks <= 1, "at most this block is parked");
  must(lowtide_resume(nullptr, nullptr));
  must(block.intact(), "intact");
  must(block.free());
  return met;
}

/// In a process of its own for each n.
int first_call_short_of_memory(const Arguments&) {
  std::uint64_t n = 1;
  for (bool failed = true; failed; ++n) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool met = false;
      try {
        met = begin_short_of_memory(n);
      } catch (const std::exception& error) {
        say("n = " + std::to_string(n) + ": " + error.what());
        _exit(2);
      }
      std::exit(met ? 0 : 1);
    }
    int status = -1;
    must(::waitpid(child, &status, 0) == child, "waitpid");
    must(WIFEXITED(status) && WEXITSTATUS(status) <= 1, ("n = " + std::to_string(n)).c_str());
    failed = WEXITSTATUS(status) == 0;
  }
  must(n > 10, "the first call allocates");
  return 0;
}

}  // namespace

std::vector<Role> api_roles() {
  return {{"before-first-call", before_first_call},
          {"struct-sizes", struct_sizes},
          {"wrong-arguments", wrong_arguments},
          {"pluggable", pluggable},
          {"pluggable-after-reset", pluggable_after_reset},
          {"pausing-is-off", pausing_is_off},
          {"left-alone", left_alone},
          {"recreated", recreated},
          {"first-call-short-of-memory", first_call_short_of_memory}};
}

}  // namespace hazards
