// SPDX-License-Identifier: Apache-2.0
// Kernels, captures and graphs around pauses.
#include <algorithm>
#include <thread>

#include "tests/gpu/hazards/stage.hpp"

namespace hazards {
namespace {

// A graph that adds 1 to every byte of the stage's first `count` blocks.
class AddingGraph {
 public:
  AddingGraph(Stage& stage, std::size_t count, const Stream& stream) : stage_(stage), count_(count), stream_(stream) {
    must(driver().begin_capture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    for (std::size_t i = 0; i < count; ++i) stage.add_one(stage.blocks()[i], stream.get());
  }
  ~AddingGraph() {
    if (executable_ != nullptr) driver().destroy_executable(executable_);
    if (graph_ != nullptr) driver().destroy_graph(graph_);
  }
  AddingGraph(const AddingGraph&) = delete;
  AddingGraph& operator=(const AddingGraph&) = delete;

  void end_capture() {
    must(driver().end_capture(stream_.get(), &graph_), "cuStreamEndCapture");
    must(driver().instantiate(&executable_, graph_, 0), "cuGraphInstantiate");
  }
  void replay() {
    must(driver().launch_graph(executable_, stream_.get()), "cuGraphLaunch");
    must(driver().synchronize_stream(stream_.get()), "cuStreamSynchronize");
    for (std::size_t i = 0; i < count_; ++i) ++stage_.blocks()[i].added;
  }

 private:
  Stage& stage_;
  std::size_t count_;
  const Stream& stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

std::string a_kernel_still_writes_on_a_non_blocking_stream(Stage& stage) {
  constexpr unsigned kMilliseconds = 300;
  constexpr std::uint8_t kValue = 0xC3;
  const Stream stream;
  Block& block = stage.make("weights", stage.sizes().block_bytes / 8 + 77);
  stage.fill_slowly(block, kValue, kMilliseconds, stream.get());
  const lowtide_report report = stage.pause("weights");
  stage.resume("weights");
  std::vector<std::uint8_t> found(block.size);
  must(driver().to_host(found.data(), block.address, block.size), "cuMemcpyDtoH");
  const auto missing = std::count_if(found.begin(), found.end(), [](std::uint8_t byte) { return byte != kValue; });
  require(missing == 0, std::to_string(missing) + " bytes of " + std::to_string(found.size()) +
                            " were copied out before the kernel wrote them");
  stage.free(block);
  return "a kernel of " + std::to_string(kMilliseconds) + " ms, the pause took " +
         std::to_string(static_cast<int>(report.seconds * 1000)) + " ms";
}

std::string capture_in_one_thread_while_another_pauses(Stage& stage) {
  stage.make_usual("weights");
  const Stream stream;
  AddingGraph graph(stage, stage.blocks().size(), stream);
  lowtide_result result = LOWTIDE_OK;
  std::string message;
  std::thread([&] {
    driver().set_context(stage.context());
    result = driver().pause("weights", nullptr);
    message = driver().last_error();
  }).join();
  graph.end_capture();  // must still be good: the refused pause has not touched the capture
  require(result == LOWTIDE_ERROR_REFUSED, "the pause answered " + std::to_string(result) + ": " + message);
  stage.pause("weights");
  stage.resume("weights");
  graph.replay();
  stage.check_all();
  return "refused, and paused after the capture";
}

std::string a_captured_graph_replays_after_the_resume(Stage& stage) {
  constexpr int kRounds = 5;
  stage.make_usual("weights");
  stage.make_usual("lora");
  const Stream stream;
  AddingGraph graph(stage, stage.blocks().size(), stream);
  graph.end_capture();
  graph.replay();
  for (int round = 0; round < kRounds; ++round) {
    stage.pause(round % 2 == 0 ? "weights" : nullptr);
    stage.resume(nullptr);
    graph.replay();
  }
  stage.check_all();
  return std::to_string(kRounds) + " rounds, " + std::to_string(stage.blocks().size()) + " kernels a graph";
}

std::string a_capture_in_a_loop_while_another_thread_pauses(Stage& stage) {
  constexpr int kCaptures = 50;
  stage.make_usual("weights");
  stage.make_usual("lora");
  int paused = 0;
  int refused = 0;
  std::string trouble;
  std::thread pausing([&] {
    for (int i = 0; i < 20 && trouble.empty(); ++i) {
      const lowtide_result result = driver().pause("lora", nullptr);
      if (result == LOWTIDE_OK) ++paused;
      if (result == LOWTIDE_ERROR_REFUSED) ++refused;
      if (result != LOWTIDE_OK && result != LOWTIDE_ERROR_REFUSED) trouble = driver().last_error();
      if (driver().resume("lora", nullptr) == LOWTIDE_ERROR_DRIVER) trouble = driver().last_error();
    }
  });
  try {
    const Stream stream;
    for (int i = 0; i < kCaptures; ++i) {
      AddingGraph graph(stage, stage.sizes().blocks, stream);
      graph.end_capture();
      graph.replay();
    }
  } catch (const Failed& failed) {
    trouble += failed.what;
  }
  pausing.join();
  require(trouble.empty(), trouble);
  stage.resume("lora");
  stage.check_all();
  return std::to_string(paused) + " pauses done, " + std::to_string(refused) + " refused, " +
         std::to_string(kCaptures) + " captures";
}

}  // namespace

std::vector<Hazard> work_hazards() {
  return {{"a_kernel_still_writes_on_a_non_blocking_stream", a_kernel_still_writes_on_a_non_blocking_stream},
          {"capture_in_one_thread_while_another_pauses", capture_in_one_thread_while_another_pauses},
          {"a_captured_graph_replays_after_the_resume", a_captured_graph_replays_after_the_resume},
          {"a_capture_in_a_loop_while_another_thread_pauses", a_capture_in_a_loop_while_another_thread_pauses}};
}

}  // namespace hazards
