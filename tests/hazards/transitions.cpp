// SPDX-License-Identifier: Apache-2.0
// Other threads during a pause or a resume. A transition is stopped at a known place, so that order proves what is
// claimed.
#include <array>
#include <memory>

#include "tests/catch.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/seams.hpp"

extern "C" CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);

using namespace hazards;

namespace {

/// A pause or a resume in another thread, which runs until it is asked to go on.
class Transition {
 public:
  explicit Transition(lowtide_result (*call)(const char*, lowtide_report*), const char* tag = "weights")
      : thread_([this, call, tag] {
          use_device();
          must(call(tag, &report));
        }) {}
  bool over() const { return thread_.done(); }
  void finish() { thread_.join(); }

  lowtide_report report{sizeof(lowtide_report)};

 private:
  OtherThread thread_;
};

/// A kernel that runs until the flag is set: a pause waits for it, with its blocks claimed.
class Spinning {
 public:
  Spinning() { kernels_.spin_until(flag_, stream_); }
  ~Spinning() { end(); }
  Spinning(const Spinning&) = delete;
  Spinning& operator=(const Spinning&) = delete;
  void end() { __atomic_store_n(&flag_, 1U, __ATOMIC_RELEASE); }

 private:
  std::uint32_t flag_ = 0;
  Kernels kernels_;
  Stream stream_;
};

/// Waits until the pause in another thread has asked the driver to wait for all work.
void wait_for_quiesce() {
  wait_until([] { return lowtide_sim_calls("cuCtxSynchronize") > 0; });
}

}  // namespace

TEST_CASE("free from another thread and outside the scope", "[transitions]") {
  const auto context = use_device();
  const auto before = used_bytes();
  auto blocks = make_blocks("weights", 4, 2 * mib);
  const auto free_there = [&](Block& block, bool with_context, const char* scope) {
    OtherThread thread([&] {
      if (with_context) must(cuCtxSetCurrent(context));
      const Scope other(scope);
      must(block.free());
    });
    thread.join();
  };
  free_there(blocks[0], true, nullptr);
  free_there(blocks[1], true, "lora");
  pause("weights");
  free_there(blocks[2], true, nullptr);
  free_there(blocks[3], false, nullptr);
  resume("weights");
  CHECK(blocks_of("weights") == 0);
  CHECK(used_bytes() == before);
}

TEST_CASE("free during the transition of its own block", "[transitions]") {
  use_device();
  const auto before = used_bytes();
  auto blocks = make_blocks("weights", 3, 2 * mib);
  auto small = make_blocks("weights", 2, 3000);
  const auto address = blocks[1].address();
  const auto free_two = [&] {
    CHECK(blocks[1].free() == CUDA_SUCCESS);
    CHECK(small[0].free() == CUDA_SUCCESS);
    CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
  };

  SECTION("a pause that waits for the device") {
    Spinning kernel;
    lowtide_sim_fail(nullptr);
    Transition pausing(&lowtide_pause);
    wait_for_quiesce();
    free_two();
    CHECK_FALSE(pausing.over());
    kernel.end();
    pausing.finish();
    CHECK(blocks_of("weights") == 3);
    CHECK(used_bytes() == before);
  }
  SECTION("a pause that takes its memory away") {
    StopAtMapping stop(blocks[1].address(), 1);
    Transition pausing(&lowtide_pause);
    wait_until([&] { return stop.reached(); });
    free_two();
    CHECK_FALSE(pausing.over());
    stop.go();
    pausing.finish();
    CHECK(blocks_of("weights") == 3);
    CHECK(used_bytes() == before);
  }
  SECTION("a resume that brings it back") {
    pause("weights");
    StopAtMapping stop(blocks[1].address(), 1);
    Transition resuming(&lowtide_resume);
    wait_until([&] { return stop.reached(); });
    free_two();
    CHECK_FALSE(resuming.over());
    stop.go();
    resuming.finish();
    CHECK(blocks_of("weights") == 3);
    pause("weights");  // what a freed block had of a common extent goes with the next pause
    resume("weights");
    CHECK(used_bytes() == before + 2 * mib + 4 * mib + 2 * mib);
  }
  resume("weights");
  CHECK(blocks[0].intact());
  CHECK(blocks[2].intact());
  CHECK(small[1].intact());
  CHECK(info("weights").bytes_backup == 0);
}

TEST_CASE("free of a foreign pointer during a long pause", "[transitions]") {
  use_device();
  auto blocks = make_blocks("weights", 2, 2 * mib);
  auto lora = make_blocks("lora", 1, 2 * mib);

  SECTION("while the pause waits for the device") {
    // The driver's own free waits for the kernel too, so the foreign pointer lies in a context without one.
    CUcontext other = nullptr;
    must(cuCtxCreate_v2(&other, 0, 0));
    Block foreign(nullptr, mib);
    Block tagged("lora", mib);
    must(cuCtxPopCurrent(nullptr));
    auto kernel = std::make_unique<Spinning>();
    lowtide_sim_fail(nullptr);
    Transition pausing(&lowtide_pause);
    wait_for_quiesce();
    {
      const Current current(other);
      CHECK(foreign.free() == CUDA_SUCCESS);
      const Block fresh(nullptr, mib);
      lora.emplace_back("lora", 3 * mib);  // whose free would wait for the device
    }
    CHECK_FALSE(pausing.over());  // these came back, and the pause still waits for the kernel
    kernel->end();
    pausing.finish();
    CHECK(pausing.report.blocks == 2);
    CHECK(tagged.free() == CUDA_SUCCESS);
    CHECK(lora.back().free() == CUDA_SUCCESS);
    kernel.reset();
    must(cuCtxDestroy(other));
  }
  SECTION("while the pause gets host memory") {
    Block foreign(nullptr, mib);
    // Larger than any backup that is kept from earlier pauses.
    const Block large("weights", 140 * mib);
    StopAtNewBackup stop;
    Transition pausing(&lowtide_pause);
    wait_until([&] { return stop.reached() || pausing.over(); });
    REQUIRE(stop.reached());
    CHECK(foreign.free() == CUDA_SUCCESS);
    CHECK(lora[0].free() == CUDA_SUCCESS);
    const Block fresh("lora", mib);
    CHECK_FALSE(pausing.over());
    stop.go();
    pausing.finish();
    CHECK(pausing.report.blocks == 3);
    resume("weights");
    CHECK(large.intact());
    CHECK(fresh.intact());
  }
  resume(nullptr);
  CHECK(intact(blocks));
}

TEST_CASE("reading a backup while its tag is resumed", "[transitions]") {
  use_device();
  Block block("weights", 32 * mib);
  std::vector<std::uint8_t> found(block.size());
  for (int round = 0; round < 10; ++round) {
    pause("weights");
    std::atomic<int> reads{0};
    std::atomic<bool> stop{false};
    lowtide_result result = LOWTIDE_OK;
    OtherThread reading([&] {
      for (; !stop && result == LOWTIDE_OK; ++reads) {
        result = lowtide_read_paused(reinterpret_cast<void*>(block.address()), found.data(), found.size());
      }
    });
    wait_until([&] { return reads > 0; });
    CHECK(resume("weights").blocks == 1);
    CHECK(info("weights").bytes_parked == 0);
    stop = true;
    reading.join();
    CHECK((result == LOWTIDE_OK || result == LOWTIDE_ERROR_INVALID));
    CHECK(found == block.content());
    CHECK(block.intact());
  }
}

TEST_CASE("a kernel still writing on a non-blocking stream when pause is called", "[transitions]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 3 * mib + 77);
  Block small("weights", 4097);
  kernels.fill_slowly(block.address(), block.size(), 0xc3, 300, stream);
  kernels.fill_slowly(small.address(), small.size(), 0x3c, 50, stream);
  pause("weights");
  std::vector<std::uint8_t> backup(block.size());
  must(lowtide_read_paused(reinterpret_cast<void*>(block.address()), backup.data(), backup.size()));
  block.expect(0xc3);
  small.expect(0x3c);
  CHECK(backup == block.content());
  resume("weights");
  CHECK(block.intact());
  CHECK(small.intact());
  must(cuStreamSynchronize(stream));
}

namespace {

/// Allocates and frees under a tag that is paused and resumed all the while, without touching that memory; keeps an
/// untagged block whose bytes must stay.
void churn(CUcontext context, unsigned number, const std::atomic<bool>& stop, std::atomic<int>& rounds) {
  must(cuCtxSetCurrent(context));
  const Block own(nullptr, 64 * kib + number);
  const char* tag = number % 2 == 0 ? "weights" : "lora";
  do {
    std::array<CUdeviceptr, 4> addresses{};
    {
      const Scope scope(tag);
      for (std::size_t i = 0; i < addresses.size(); ++i) must(cuMemAlloc(&addresses[i], (i + 1) * 700 * kib + number));
    }
    for (const auto address : addresses) must(cuMemFree(address));
    ++rounds;
  } while (!stop);
  must(own.intact(), "the untagged block holds its bytes");
}

}  // namespace

TEST_CASE("8 threads allocating and freeing while tags pause and resume", "[transitions]") {
  const auto context = use_device();
  const auto before = used_bytes();
  {
    const auto weights = make_blocks("weights", 4, 2 * mib);
    const auto lora = make_blocks("lora", 4, 5000);
    std::atomic<bool> stop{false};
    std::array<std::atomic<int>, 8> rounds{};
    std::vector<std::unique_ptr<OtherThread>> threads;
    for (unsigned i = 0; i < rounds.size(); ++i) {
      threads.push_back(std::make_unique<OtherThread>([&, i] { churn(context, i, stop, rounds[i]); }));
    }
    for (int round = 0; round < 12; ++round) {
      pause(round % 3 == 0 ? "weights" : round % 3 == 1 ? "lora" : nullptr);
      resume(nullptr);
    }
    for (auto& thread_rounds : rounds) wait_until([&] { return thread_rounds > 2; });
    stop = true;
    for (auto& thread : threads) thread->join();
    resume(nullptr);
    CHECK(intact(weights));
    CHECK(intact(lora));
    CHECK(blocks_of("weights") == 4);
    CHECK(blocks_of("lora") == 4);
  }
  CHECK(used_bytes() == before);
}
