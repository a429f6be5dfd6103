// SPDX-License-Identifier: Apache-2.0
// A hold through the control socket: the gate is closed until the resume.
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/hazards/child.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/seams.hpp"

using namespace hazards;

namespace {

std::string ask(const std::string& request) { return hazards::ask(::getpid(), request); }
bool gate_is_open() { return says(ask("status"), "\"gate\":\"open\""); }

/// What a thread does with a held block: changes it in some way and says so.
struct Work {
  const char* name;
  std::function<void(Block&, const Kernels&, CUstream)> run;
};

void expect_part(Block& block, std::size_t bytes, std::uint8_t value) {
  auto content = block.content();
  std::fill_n(content.begin(), bytes, value);
  must(block.read() == content, "the bytes are right");
}

const std::vector<Work>& works() {
  static const std::vector<Work> all{
      {"a launch",
       [](Block& block, const Kernels& kernels, CUstream stream) {
         kernels.add_one(block.address(), block.size(), stream);
         must(cuStreamSynchronize(stream));
         block.expect_one_more();
         must(block.intact(), "every byte is one more");
       }},
      {"a copy to the host", [](Block& block, const Kernels&, CUstream) { must(block.intact(), "intact"); }},
      {"a copy to the device",
       [](Block& block, const Kernels&, CUstream) {
         block.write();
         must(block.intact(), "the new bytes are there");
       }},
      {"an asynchronous copy",
       [](Block& block, const Kernels&, CUstream stream) {
         const std::vector<std::uint8_t> bytes(1000, 0x42);
         must(cuMemcpyHtoDAsync(block.address(), bytes.data(), bytes.size(), stream));
         must(cuStreamSynchronize(stream));
         expect_part(block, 1000, 0x42);
       }},
      {"a memset",
       [](Block& block, const Kernels&, CUstream) {
         must(cuMemsetD8(block.address(), 0x17, 5000));
         expect_part(block, 5000, 0x17);
       }},
      {"an asynchronous memset",
       [](Block& block, const Kernels&, CUstream stream) {
         must(cuMemsetD8Async(block.address(), 0x18, 6000, stream));
         must(cuStreamSynchronize(stream));
         expect_part(block, 6000, 0x18);
       }},
  };
  return all;
}

}  // namespace

TEST_CASE("launches, copies and memsets wait at the gate while paused", "[hold]") {
  const auto context = use_device();
  const Kernels kernels;
  auto blocks = make_blocks("weights", works().size(), 2 * mib);
  REQUIRE(is_ok(ask("pause tag=weights")));
  CHECK(says(ask("status"), "\"gate\":\"closed\""));
  CHECK(says(ask("status"), "\"held_tags\":[\"weights\"]"));
  std::vector<std::unique_ptr<OtherThread>> threads;
  for (std::size_t i = 0; i < works().size(); ++i) {
    threads.push_back(std::make_unique<OtherThread>([&, i] {
      must(cuCtxSetCurrent(context));
      const Stream stream;
      works()[i].run(blocks[i], kernels, stream);
    }));
  }
  for (std::size_t i = 0; i < threads.size(); ++i) {
    INFO(works()[i].name);
    threads[i]->wait_until_asleep_or_done();
    CHECK_FALSE(threads[i]->done());
  }
  // Allocating and freeing goes on.
  {
    const Scope scope("weights");
    CUdeviceptr late = 0;
    must(cuMemAlloc(&late, mib));
    must(cuMemFree(late));
  }
  CHECK(info("weights").bytes_resident == 0);
  CHECK(is_ok(ask("resume tag=weights")));
  for (auto& thread : threads) CHECK_NOTHROW(thread->join());
  CHECK(gate_is_open());
}

TEST_CASE("a graph launch waits at the gate while paused", "[hold]") {
  const auto context = use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib);
  must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  kernels.add_one(block.address(), block.size(), stream);
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  must(cuStreamEndCapture(stream, &graph));
  must(cuGraphInstantiate(&executable, graph, 0));
  REQUIRE(is_ok(ask("pause")));
  OtherThread launching([&] {
    must(cuCtxSetCurrent(context));
    must(cuGraphLaunch(executable, stream));
    must(cuStreamSynchronize(stream));
  });
  launching.wait_until_asleep_or_done();
  CHECK_FALSE(launching.done());
  CHECK(is_ok(ask("resume")));
  launching.join();
  block.expect_one_more();
  CHECK(block.intact());
  must(cuGraphExecDestroy(executable));
  must(cuGraphDestroy(graph));
}

TEST_CASE("the gate opens when everything that was held is back", "[hold]") {
  use_device();
  const auto weights = make_blocks("weights", 1, 2 * mib);
  const auto lora = make_blocks("lora", 1, 2 * mib);
  const auto cooperative = make_blocks("kv", 1, 2 * mib);
  REQUIRE(is_ok(ask("pause tag=kv hold=0")));
  CHECK(gate_is_open());
  REQUIRE(is_ok(ask("pause tag=weights")));
  REQUIRE(is_ok(ask("pause tag=lora")));
  CHECK(is_ok(ask("pause tag=lora")));
  CHECK(is_ok(ask("resume tag=weights")));
  CHECK_FALSE(gate_is_open());
  CHECK(resume("lora").blocks == 1);  // by the process itself
  CHECK(gate_is_open());
  CHECK(intact(weights));
  CHECK(intact(lora));
  CHECK(info("kv").bytes_parked == 2 * mib);
  resume("kv");
  CHECK(intact(cooperative));
}

TEST_CASE("a hold of what need not wait opens the gate again", "[hold]") {
  use_device();
  must(lowtide_set("tag.kept.pause", "keep"));
  const Block kept("kept", 2 * mib);
  const auto answer = ask("pause tag=kept");
  CHECK(is_ok(answer));
  CHECK(number_in(answer, "bytes_kept") == static_cast<long long>(2 * mib));
  CHECK(gate_is_open());
  CHECK(kept.intact());
  CHECK_FALSE(is_ok(ask("pause tag=nobody")));
  CHECK(gate_is_open());
}

TEST_CASE("a hold that cannot drain is undone and says so", "[hold]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib);
  const auto before = ask("status");
  std::uint32_t flag = 0;
  kernels.spin_until(flag, stream);
  const auto failed = ask("pause tag=weights timeout=0.2");
  CHECK(says(failed, "\"ok\":false"));
  CHECK(says(failed, "\"name\":\"BUSY\""));
  CHECK(says(failed, "did not come to rest within 0.2 s"));
  CHECK(ask("status") == before);
  CHECK(block.intact());  // the process goes on, here with a copy
  must(lowtide_set("gate.drain", "100ms"));
  CHECK(says(ask("pause tag=weights"), "did not come to rest within 0.1 s"));
  CHECK(gate_is_open());
  must(lowtide_set("gate.drain", "10s"));
  __atomic_store_n(&flag, 1U, __ATOMIC_RELEASE);
  const auto second = ask("pause tag=weights");
  CHECK(is_ok(second));
  CHECK(number_in(second, "blocks") == 1);
  CHECK(is_ok(ask("resume tag=weights")));
  CHECK(block.intact());
}

TEST_CASE("a hold waits for a thread inside a copy", "[hold]") {
  const auto context = use_device();
  const Kernels kernels;
  const Block block("weights", 2 * mib);
  const Block other(nullptr, 4096);
  std::uint32_t flag = 0;
  kernels.spin_until(flag, nullptr);
  lowtide_sim_fail(nullptr);
  // The copy waits in the default stream for the kernel before it.
  OtherThread copying([&] {
    must(cuCtxSetCurrent(context));
    must(other.intact(), "the copy is right");
  });
  wait_until([] { return lowtide_sim_calls("cuMemcpyDtoH") > 0; });
  CHECK(says(ask("pause tag=weights timeout=0.1"), "1 thread(s) did not come back"));
  CHECK_FALSE(copying.done());
  const Client client(::getpid());
  client.send("pause tag=weights");
  __atomic_store_n(&flag, 1U, __ATOMIC_RELEASE);
  CHECK(is_ok(client.answer()));
  CHECK_NOTHROW(copying.join());
  CHECK(is_ok(ask("resume")));
  CHECK(block.intact());
}

TEST_CASE("a resume by the process itself while a hold comes to rest", "[hold]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  const Block block("weights", 2 * mib);
  const Block other("lora", 2 * mib);
  pause("lora");
  std::uint32_t flag = 0;
  kernels.spin_until(flag, stream);
  lowtide_sim_fail(nullptr);
  const Client client(::getpid());
  client.send("pause tag=weights");
  wait_until([] { return lowtide_sim_calls("cuCtxSynchronize") > 0; });
  resume("lora");
  CHECK_FALSE(gate_is_open());
  __atomic_store_n(&flag, 1U, __ATOMIC_RELEASE);
  CHECK(is_ok(client.answer()));
  CHECK_FALSE(gate_is_open());
  CHECK(is_ok(ask("resume")));
  CHECK(gate_is_open());
  CHECK(block.intact());
  CHECK(other.intact());
}

TEST_CASE("a client that goes away while a kernel runs calls its hold off", "[hold]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  const Block block("weights", 2 * mib);
  const auto before = ask("status");
  std::uint32_t flag = 0;
  kernels.spin_until(flag, stream);
  lowtide_sim_fail(nullptr);
  {
    const Client client(::getpid());
    client.send("pause tag=weights timeout=100000");
    wait_until([] { return lowtide_sim_calls("cuCtxSynchronize") > 0; });
    CHECK_FALSE(gate_is_open());
  }
  wait_until([] { return gate_is_open(); });
  wait_until([&] { return ask("status") == before; });
  CHECK(block.intact());  // the process goes on, here with a copy
  __atomic_store_n(&flag, 1U, __ATOMIC_RELEASE);
  CHECK(is_ok(ask("pause tag=weights")));
  CHECK(is_ok(ask("resume")));
  CHECK(block.intact());
}

TEST_CASE("killed client in the middle of a pause", "[hold]") {
  use_device();
  const auto blocks = make_blocks("weights", 3, 2 * mib);
  StopAtMapping stop(blocks[1].address(), 1);
  Child client("hazards_victim", {"client", std::to_string(::getpid()), "pause tag=weights"});
  wait_until([&] { return stop.reached(); });
  CHECK(says(ask("status"), "\"step\":\"pause\""));  // answered meanwhile
  client.kill();
  client.end();
  stop.go();
  // The transition was not stopped, and the next client finds its result.
  const auto again = ask("pause tag=weights");
  CHECK(is_ok(again));
  CHECK(number_in(again, "blocks") == 0);
  CHECK(info("weights").bytes_resident == 0);
  CHECK_FALSE(gate_is_open());
  CHECK(is_ok(ask("resume tag=weights")));
  CHECK(gate_is_open());
  CHECK(intact(blocks));
}

namespace {

/// Runs `body` in a thread that has been told to end, and does so after `body`, which must come back.
struct Cancelled {
  std::function<void()> body;
  std::atomic<pid_t> id{0};
  std::atomic<bool> came_back{false};
  pthread_t thread{};

  explicit Cancelled(std::function<void()> work) : body(std::move(work)) {
    pthread_create(&thread, nullptr, &Cancelled::run, this);
  }
  static void* run(void* self) {
    auto& cancelled = *static_cast<Cancelled*>(self);
    cancelled.id = ::gettid();
    cancelled.body();
    cancelled.came_back = true;
    pthread_testcancel();
    return nullptr;
  }
  bool ends() const {
    void* result = nullptr;
    pthread_join(thread, &result);
    return came_back && result == PTHREAD_CANCELED;
  }
};

}  // namespace

TEST_CASE("a thread that is cancelled", "[hold]") {
  const auto context = use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib);
  SECTION("at the gate") {
    REQUIRE(is_ok(ask("pause tag=weights")));
    Cancelled launching([&] {
      cuCtxSetCurrent(context);
      (void)kernels.try_add_one(block.address(), block.size(), stream);
    });
    wait_until([&] { return launching.id != 0; });
    wait_until_asleep_or(launching.id, [&] { return launching.came_back.load(); });
    pthread_cancel(launching.thread);
    CHECK(is_ok(ask("resume")));
    CHECK(launching.ends());
    must(cuStreamSynchronize(stream));
    block.expect_one_more();
  }
  SECTION("before a pause and a resume") {
    std::array<lowtide_result, 2> results{LOWTIDE_ERROR_BUSY, LOWTIDE_ERROR_BUSY};
    Cancelled pausing([&] {
      pthread_cancel(pthread_self());
      results = {lowtide_pause("weights", nullptr), lowtide_resume("weights", nullptr)};
    });
    CHECK(pausing.ends());
    CHECK(results == std::array<lowtide_result, 2>{LOWTIDE_OK, LOWTIDE_OK});
  }
  CHECK(block.intact());
}

TEST_CASE("a held process works through a runtime", "[hold]") {
  const std::string program = GENERATE("hazards_static_cudart", "hazards_dynamic_cudart");
  INFO(program);
  Child child(program, {}, {{"LOWTIDE_DEFAULT_TAG", "weights"}});
  REQUIRE(child.line() == "ready");
  const auto held = hazards::ask(child.pid(), "pause");
  REQUIRE(is_ok(held));
  CHECK(number_in(held, "blocks") == 4);
  CHECK(number_in(held, "bytes_parked") == static_cast<long long>(4 * (3 * mib + 5)));
  child.say("work");
  REQUIRE(child.line() == "begin");
  child.wait_until_asleep();
  CHECK_FALSE(child.has_more());
  CHECK(says(hazards::ask(child.pid(), "status"), "\"state\":\"parked\""));
  CHECK(is_ok(hazards::ask(child.pid(), "resume")));
  CHECK(child.line() == "right");
  const auto ending = child.end();
  CHECK(ending.status == 0);
  CHECK(ending.errors == "");
}

TEST_CASE("SIGKILL of the held process frees its memory", "[hold]") {
  const Environment shared{{"LOWTIDE_SIM_DIR", runtime_directory() + "/gpu"}, {"LOWTIDE_DEFAULT_TAG", "weights"}};
  const auto free_now = [&] { return run_victim("free-bytes", shared).output; };
  const auto all = free_now();
  Child held("hazards_victim", {"hold-me"}, shared);
  REQUIRE(held.line() == "ready");
  const auto busy = free_now();
  CHECK(std::stoull(busy) + 12 * mib <= std::stoull(all));
  CHECK(is_ok(hazards::ask(held.pid(), "pause tag=weights")));
  CHECK(std::stoull(free_now()) >= std::stoull(busy) + 8 * mib);
  CHECK(free_now() != all);  // another tag of it is still resident
  held.kill();
  held.end();
  CHECK(free_now() == all);
}
