// SPDX-License-Identifier: Apache-2.0
// Stream captures around pauses.
#include "tests/catch.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/seams.hpp"

#include <unistd.h>

using namespace hazards;

namespace {

/// A graph that adds 1 to every byte of a block.
class Capture {
 public:
  Capture(const Kernels& kernels, Block& block, CUstream stream) : kernels_(kernels), block_(block), stream_(stream) {}
  ~Capture() {
    if (executable_ != nullptr) cuGraphExecDestroy(executable_);
    if (graph_ != nullptr) cuGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    must(cuStreamBeginCapture(stream_, mode));
    kernels_.add_one(block_.address(), block_.size(), stream_);
  }
  void end() {
    must(cuStreamEndCapture(stream_, &graph_));
    must(cuGraphInstantiate(&executable_, graph_, 0));
  }
  void replay() {
    must(cuGraphLaunch(executable_, stream_));
    must(cuStreamSynchronize(stream_));
    block_.expect_one_more();
  }

 private:
  const Kernels& kernels_;
  Block& block_;
  CUstream stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace

TEST_CASE("a capture in thread A while thread B pauses", "[captures]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib + 5);
  Capture capture(kernels, block, stream);
  capture.begin();
  lowtide_result paused = LOWTIDE_OK;
  std::string message;
  std::string held;
  OtherThread b([&] {
    use_device();
    paused = lowtide_pause("weights", nullptr);
    message = lowtide_last_error();
    held = ask(::getpid(), "pause tag=weights timeout=0.1");
  });
  b.join();
  CHECK(paused == LOWTIDE_ERROR_REFUSED);
  CHECK(message.find("capture") != std::string::npos);
  CHECK_FALSE(is_ok(held));
  CHECK(says(held, "capture"));
  CHECK(says(ask(::getpid(), "status"), "\"gate\":\"open\""));
  capture.end();  // it was not broken
  capture.replay();
  CHECK(pause("weights").blocks == 1);
  resume("weights");
  capture.replay();  // and it replays at the same addresses
  CHECK(block.intact());
}

TEST_CASE("a hold waits for the end of a capture", "[captures]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib);
  Capture capture(kernels, block, stream);
  capture.begin();
  const Client client(::getpid());
  client.send("pause tag=weights");
  capture.end();
  CHECK(is_ok(client.answer()));
  CHECK(info("weights").bytes_parked == 2 * mib);
  CHECK(is_ok(ask(::getpid(), "resume tag=weights")));
  capture.replay();
  CHECK(block.intact());
}

TEST_CASE("a free during a capture", "[captures]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  const auto before = used_bytes();
  Block block("weights", 2 * mib);
  Block freed("weights", 2 * mib);
  Block freed_small("weights", 3000);
  Block kept_small("weights", 3000);
  Capture capture(kernels, block, stream);
  capture.begin();
  OtherThread other([&] {
    use_device();
    must(freed.free());
  });
  other.join();
  CHECK(freed_small.free() == CUDA_SUCCESS);
  CHECK(used_bytes() == before + 6 * mib);  // a free waits for the device, which would break the capture
  capture.end();
  CHECK(used_bytes() == before + 4 * mib);
  CHECK(blocks_of("weights") == 2);
  capture.replay();
  CHECK(block.intact());
  CHECK(kept_small.intact());
}

TEST_CASE("a capture that fails still ends", "[captures]") {
  use_device();
  const Stream stream;
  const Block block("weights", 2 * mib);
  SECTION("begun twice") {
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS);
    CUgraph graph = nullptr;
    must(cuStreamEndCapture(stream, &graph));
    must(cuGraphDestroy(graph));
  }
  SECTION("made invalid") {
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuStreamSynchronize(stream) != CUDA_SUCCESS);
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
  }
  SECTION("its stream destroyed") {
    CUstream short_lived = nullptr;
    must(cuStreamCreate(&short_lived, CU_STREAM_NON_BLOCKING));
    must(cuStreamBeginCapture(short_lived, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (cuStreamDestroy(short_lived) != CUDA_SUCCESS) {
      CHECK(number_in(ask(::getpid(), "status"), "captures") == 1);
      CUgraph graph = nullptr;
      (void)cuStreamEndCapture(short_lived, &graph);
      must(cuStreamDestroy(short_lived));
    }
  }
  SECTION("never begun") {
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
  }
  CHECK(number_in(ask(::getpid(), "status"), "captures") == 0);
  CHECK(pause("weights").blocks == 1);
  resume("weights");
  CHECK(block.intact());
}

TEST_CASE("a capture begun during a transition waits", "[captures]") {
  const auto context = use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib);
  Block captured(nullptr, 4096);
  Capture capture(kernels, captured, stream);
  StopAtMapping stop(block.address(), 1);
  OtherThread pausing([&] {
    use_device();
    pause("weights");
  });
  wait_until([&] { return stop.reached(); });
  std::atomic<bool> begun{false};
  OtherThread capturing([&] {
    must(cuCtxSetCurrent(context));
    capture.begin();
    begun = true;
    capture.end();
  });
  capturing.wait_until_asleep_or_done();
  CHECK_FALSE(begun);
  stop.go();
  pausing.join();
  capturing.join();
  CHECK(begun);
  CHECK(info("weights").bytes_parked == 2 * mib);
  resume("weights");
  capture.replay();
  CHECK(captured.intact());
  CHECK(block.intact());
}
