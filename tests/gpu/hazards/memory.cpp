// SPDX-License-Identifier: Apache-2.0
// Allocating and freeing around pauses, in one thread and several.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/hazards/stage.hpp"

namespace hazards {
namespace {

constexpr double kLeastFreed = 0.99;

std::string mib(std::size_t bytes) { return std::to_string(bytes >> 20U) + " MiB"; }

std::string bytes_come_back_exactly(Stage& stage) {
  stage.make_usual("weights");
  const std::size_t before = Stage::free_bytes();
  const lowtide_report report = stage.pause("weights");
  const std::size_t freed = Stage::free_bytes() - before;
  require(static_cast<double>(freed) >= kLeastFreed * static_cast<double>(stage.total()),
          mib(freed) + " came free of " + mib(stage.total()));
  require(report.bytes_parked == stage.total(),
          "the report says " + std::to_string(report.bytes_parked) + " bytes, not " + std::to_string(stage.total()));
  stage.resume("weights");
  stage.check_all();
  return mib(freed) + " freed of " + mib(stage.total());
}

std::string pause_twice(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  const lowtide_report again = stage.pause("weights");
  require(again.blocks == 0 && again.bytes_parked == 0,
          "the second pause changed " + std::to_string(again.blocks) + " blocks");
  stage.resume("weights");
  stage.check_all();
  return std::to_string(stage.blocks().size()) + " blocks";
}

std::string resume_twice(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  stage.resume("weights");
  const lowtide_report again = stage.resume("weights");
  require(again.blocks == 0, "the second resume changed " + std::to_string(again.blocks) + " blocks");
  stage.check_all();
  return std::to_string(stage.blocks().size()) + " blocks";
}

std::string pause_all_after_pausing_one_tag(Stage& stage) {
  stage.make_usual("weights");
  stage.make_usual("lora");
  stage.pause("weights");
  const lowtide_report rest = stage.pause(nullptr);
  require(rest.blocks == stage.sizes().blocks, std::to_string(rest.blocks) + " blocks were paused by the second pause");
  stage.resume(nullptr);
  stage.check_all();
  return std::to_string(rest.blocks) + " of " + std::to_string(stage.blocks().size()) + " blocks were left to pause";
}

std::string allocate_in_a_paused_tag_then_resume(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  Block& late = stage.make("weights", stage.sizes().block_bytes);
  stage.check(late);
  stage.resume("weights");
  stage.check_all();
  return mib(late.size) + " allocated while paused";
}

std::string free_while_parked(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  for (std::size_t i = 0; i < stage.blocks().size(); i += 2) stage.free(stage.blocks()[i]);
  stage.resume("weights");
  stage.check_all();
  const lowtide_tag_info info = stage.info("weights");
  require(info.bytes_resident == stage.total() && info.bytes_parked == 0,
          std::to_string(info.bytes_resident) + " bytes are resident of " + std::to_string(stage.total()));
  return std::to_string(info.blocks) + " blocks left";
}

std::string free_everything_while_parked(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  for (Block& block : stage.blocks()) stage.free(block);
  stage.resume("weights");
  const lowtide_tag_info info = stage.info("weights");
  require(info.blocks == 0 && info.bytes_backup == 0, std::to_string(info.bytes_backup) + " bytes of backup are left");
  return "no block and no backup left";
}

std::string one_of_two_neighbours_freed(Stage& stage) {
  for (std::size_t i = 0; i < 32; ++i) stage.make("weights", 4096 + 1000 * i);
  for (std::size_t i = 0; i < stage.blocks().size(); i += 2) stage.free(stage.blocks()[i]);
  stage.check_all();
  stage.pause("weights");
  for (std::size_t i = 1; i < stage.blocks().size(); i += 4) stage.free(stage.blocks()[i]);
  stage.resume("weights");
  stage.check_all();
  stage.make("weights", 3000);
  stage.check_all();
  return "32 small blocks, 24 freed";
}

std::string free_from_another_thread_and_outside_the_scope(Stage& stage) {
  stage.make_usual("weights");
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    driver().set_context(stage.context());
    result = driver().free(stage.blocks()[0].address);
  }).join();
  must(result, "cuMemFree in another thread");
  stage.blocks()[0].address = 0;
  stage.pause("weights");
  stage.resume("weights");
  stage.check_all();
  return std::to_string(stage.info("weights").blocks) + " blocks left";
}

// The frees of the tag's blocks race with pauses and resumes of the tag.
std::string free_during_the_transition_of_its_own_block(Stage& stage) {
  constexpr int kRounds = 6;
  int freed = 0;
  for (int round = 0; round < kRounds; ++round) {
    stage.make_usual("weights");
    std::atomic<int> failures{0};
    std::thread freeing([&] {
      driver().set_context(stage.context());
      for (std::size_t i = stage.blocks().size() - stage.sizes().blocks; i < stage.blocks().size(); i += 2) {
        if (driver().free(stage.blocks()[i].address) != CUDA_SUCCESS) ++failures;
        stage.blocks()[i].address = 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(round));
      }
    });
    const lowtide_result paused = driver().pause("weights", nullptr);
    const lowtide_result resumed = driver().resume("weights", nullptr);
    freeing.join();
    require(failures == 0, std::to_string(failures) + " frees failed");
    require(paused == LOWTIDE_OK && resumed == LOWTIDE_OK, std::string("pause or resume: ") + driver().last_error());
    stage.check_all();
    freed += static_cast<int>(stage.sizes().blocks + 1) / 2;
  }
  const lowtide_tag_info info = stage.info("weights");
  require(info.bytes_resident == stage.total(),
          std::to_string(info.bytes_resident) + " bytes are resident of " + std::to_string(stage.total()));
  return std::to_string(freed) + " frees in " + std::to_string(kRounds) + " rounds";
}

std::string free_of_a_foreign_pointer_during_a_long_pause(Stage& stage) {
  stage.make_usual("weights");
  std::atomic<bool> over{false};
  lowtide_result result = LOWTIDE_OK;
  std::thread pausing([&] {
    result = driver().pause("weights", nullptr);
    over = true;
  });
  int freed = 0;
  int freed_in_the_pause = 0;
  CUresult failure = CUDA_SUCCESS;
  do {
    CUdeviceptr foreign = 0;
    failure = driver().allocate(&foreign, stage.sizes().block_bytes);
    if (failure == CUDA_SUCCESS) failure = driver().free(foreign);
    ++freed;
    freed_in_the_pause += over ? 0 : 1;
  } while (!over && failure == CUDA_SUCCESS);
  pausing.join();
  must(failure, "a foreign allocation or its free");
  require(result == LOWTIDE_OK, "the pause failed");
  stage.resume("weights");
  stage.check_all();
  return std::to_string(freed_in_the_pause) + " foreign blocks came and went during the pause, " +
         std::to_string(freed) + " in all";
}

// Whatever the driver answers, a scope must not change it.
std::string size_0(Stage&) {
  CUdeviceptr address = 1;
  const CUresult bare = driver().allocate(&address, 0);
  const CUresult bare_free = driver().free(0);
  const Scope scope("weights");
  const CUresult tagged = driver().allocate(&address, 0);
  const CUresult tagged_free = driver().free(0);
  require(tagged == bare, "in a scope " + name_of(tagged) + ", without " + name_of(bare));
  require(tagged_free == bare_free,
          "a free of NULL: in a scope " + name_of(tagged_free) + ", without " + name_of(bare_free));
  return "an allocation " + name_of(tagged) + ", a free of NULL " + name_of(tagged_free);
}

std::string repeated_pauses_leak_nothing(Stage& stage) {
  stage.make_usual("weights");
  stage.pause("weights");
  stage.resume("weights");
  const std::size_t before = Stage::free_bytes();
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) {
    stage.pause("weights");
    stage.resume("weights");
  }
  const std::size_t after = Stage::free_bytes();
  require(after + (std::size_t{8} << 20U) >= before,
          mib(before - after) + " of device memory went in " + std::to_string(kTimes) + " rounds");
  stage.check_all();
  return std::to_string(kTimes) + " rounds of " + mib(stage.total());
}

}  // namespace

std::vector<Hazard> memory_hazards() {
  return {{"bytes_come_back_exactly", bytes_come_back_exactly},
          {"pause_twice", pause_twice},
          {"resume_twice", resume_twice},
          {"pause_all_after_pausing_one_tag", pause_all_after_pausing_one_tag},
          {"allocate_in_a_paused_tag_then_resume", allocate_in_a_paused_tag_then_resume},
          {"free_while_parked", free_while_parked},
          {"free_everything_while_parked", free_everything_while_parked},
          {"one_of_two_neighbours_freed", one_of_two_neighbours_freed},
          {"free_from_another_thread_and_outside_the_scope", free_from_another_thread_and_outside_the_scope},
          {"free_during_the_transition_of_its_own_block", free_during_the_transition_of_its_own_block},
          {"free_of_a_foreign_pointer_during_a_long_pause", free_of_a_foreign_pointer_during_a_long_pause},
          {"size_0", size_0},
          {"repeated_pauses_leak_nothing", repeated_pauses_leak_nothing}};
}

}  // namespace hazards
