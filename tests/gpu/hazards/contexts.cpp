// SPDX-License-Identifier: Apache-2.0
// Threads without a context, devices with two, and contexts that go away.
#include <thread>

#include "tests/gpu/hazards/stage.hpp"

namespace hazards {
namespace {

// A second context of device 0; not current in any thread once it is made.
class SecondContext {
 public:
  explicit SecondContext(const Stage& stage) {
    require(driver().create_context != nullptr, "there is no cuCtxCreate_v2");
    must(driver().create_context(&context_, 0, 0), "cuCtxCreate");
    Stage::use_context(stage.context());
  }
  ~SecondContext() { destroy(); }
  SecondContext(const SecondContext&) = delete;
  SecondContext& operator=(const SecondContext&) = delete;
  CUcontext get() const { return context_; }
  void destroy() {
    if (context_ != nullptr) driver().destroy_context(context_);
    context_ = nullptr;
  }

 private:
  CUcontext context_ = nullptr;
};

std::string a_thread_without_a_context(Stage&) {
  CUresult bare = CUDA_SUCCESS;
  CUresult tagged = CUDA_SUCCESS;
  lowtide_result scoped = LOWTIDE_OK;
  std::thread([&] {
    CUdeviceptr address = 0;
    bare = driver().allocate(&address, 1U << 20U);
    scoped = driver().scope_begin("weights");
    tagged = driver().allocate(&address, 1U << 20U);
    driver().scope_end();
  }).join();
  require(scoped == LOWTIDE_OK, "the scope could not be entered");
  require(tagged == bare, "in a scope " + name_of(tagged) + ", without " + name_of(bare));
  return name_of(tagged);
}

std::string a_thread_without_a_context_pauses_and_resumes(Stage& stage) {
  stage.make_usual("weights");
  lowtide_result paused = LOWTIDE_ERROR_INVALID;
  lowtide_result resumed = LOWTIDE_ERROR_INVALID;
  std::string message;
  std::thread([&] {
    paused = driver().pause("weights", nullptr);
    if (paused != LOWTIDE_OK) message = driver().last_error();
    resumed = driver().resume("weights", nullptr);
    if (resumed != LOWTIDE_OK) message = driver().last_error();
  }).join();
  require(paused == LOWTIDE_OK && resumed == LOWTIDE_OK, message);
  stage.check_all();
  return std::to_string(stage.blocks().size()) + " blocks";
}

std::string two_contexts_on_a_device(Stage& stage) {
  const SecondContext second(stage);
  stage.make_usual("weights");
  Stage::use_context(second.get());
  stage.make_usual("weights");
  const lowtide_report report = stage.pause("weights");
  require(report.blocks == stage.blocks().size(), std::to_string(report.blocks) + " blocks were paused");
  Stage::use_context(stage.context());
  stage.resume("weights");
  for (std::size_t i = 0; i < stage.blocks().size(); ++i) {
    Stage::use_context(i < stage.sizes().blocks ? stage.context() : second.get());
    stage.check(stage.blocks()[i]);
    stage.free(stage.blocks()[i]);
  }
  return std::to_string(report.blocks) + " blocks in two contexts";
}

// The blocks of the dead context are gone with it; a free of one is quiet or refused, and never harms another.
std::string forget_after_destruction(Stage& stage, bool parked) {
  SecondContext second(stage);
  stage.make_usual("weights");
  Stage::use_context(second.get());
  Block& lost = stage.make("weights", stage.sizes().block_bytes);
  if (parked) stage.pause("weights");
  Stage::use_context(stage.context());
  second.destroy();
  const CUdeviceptr address = lost.address;
  lost.address = 0;
  stage.pause("weights");
  stage.resume("weights");
  stage.check_all();
  driver().free(address);
  stage.check_all();
  const lowtide_tag_info info = stage.info("weights");
  require(info.bytes_resident == stage.total() && info.bytes_backup == 0,
          std::to_string(info.bytes_resident) + " bytes are resident of " + std::to_string(stage.total()));
  return std::to_string(info.blocks) + " blocks left";
}

std::string a_destroyed_context(Stage& stage) { return forget_after_destruction(stage, false); }
std::string a_context_destroyed_while_paused(Stage& stage) { return forget_after_destruction(stage, true); }

}  // namespace

std::vector<Hazard> context_hazards() {
  return {{"a_thread_without_a_context", a_thread_without_a_context},
          {"a_thread_without_a_context_pauses_and_resumes", a_thread_without_a_context_pauses_and_resumes},
          {"two_contexts_on_a_device", two_contexts_on_a_device},
          {"a_destroyed_context", a_destroyed_context},
          {"a_context_destroyed_while_paused", a_context_destroyed_while_paused}};
}

}  // namespace hazards
