// SPDX-License-Identifier: Apache-2.0
// Hazards that end, begin or configure a process: each is played by a program of its own.
#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/hazards/child.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"

using namespace hazards;

namespace {

const Environment default_tag{{"LOWTIDE_DEFAULT_TAG", "weights"}};
const Environment no_preload{{"LD_PRELOAD", ""}};

std::string preload() {
  const char* value = std::getenv("LD_PRELOAD");
  must(value != nullptr, "the tests run under the preload");
  return value;
}

/// It exited with 0, and neither it nor Lowtide had anything to say.
void quiet(const Ending& ending, const std::string& output = "") {
  CHECK(ending.status == 0);
  CHECK(ending.output == output);
  CHECK(ending.errors == "");
}

}  // namespace

TEST_CASE("exit while paused", "[processes]") {
  SECTION("frees in static destructors and exit handlers") { quiet(run_victim("exit-paused"), "paused\n"); }
  SECTION("a pause is asked for after the end began") {
    const auto ending = run_victim("exit-then-pause");
    CHECK(ending.status == 0);
    CHECK(says(ending.output, "the process is ending"));
    CHECK(ending.errors == "");
  }
  SECTION("a pause is under way") { quiet(run_victim("exit-during-pause")); }
  SECTION("a thread waits at the gate") {
    Child child("hazards_victim", {"exit-at-gate"});
    const auto thread = child.line();
    REQUIRE(thread != "");
    wait_until_asleep_or(std::stoi(thread), [] { return false; });
    const auto socket = socket_of(child.pid());
    CHECK(::access(socket.c_str(), F_OK) == 0);
    child.say("exit");
    quiet(child.end());
    CHECK(::access(socket.c_str(), F_OK) != 0);
  }
}

TEST_CASE("fork before and after the first GPU call", "[processes]") {
  SECTION("before") { quiet(run_victim("fork-before")); }
  SECTION("after") { quiet(run_victim("fork-after")); }
  SECTION("while the gate is closed") { quiet(run_victim("fork-held")); }
  SECTION("while another thread makes the first call") { quiet(run_victim("fork-during-first-call")); }
}

TEST_CASE("exec of children", "[processes]") { quiet(run_victim("exec-child")); }

TEST_CASE("unmanaged callers", "[processes]") {
  const auto managed_by = [](const std::string& library, const std::string& how) {
    return Child("hazards_victim", {"plugin", library, how}, how == "scoped" ? Environment{} : default_tag).end();
  };
  quiet(managed_by("libnccl_fake.so", "plainly"), "0\n");
  quiet(managed_by("libnccl_fake.so", "deepbind"), "0\n");
  quiet(managed_by("libnccl_fake.so", "scoped"), "0\n");
  quiet(managed_by("libhazard_plugin.so", "scoped"), "1\n");
  quiet(managed_by("libhazard_plugin.so", "plainly"), "1\n");
}

TEST_CASE("DEEPBIND", "[processes]") {
  quiet(Child("hazards_victim", {"plugin", "libhazard_plugin.so", "deepbind"}, default_tag).end(), "1\n");
}

TEST_CASE("a second preload that uses RTLD_NEXT", "[processes]") {
  const auto second = own_folder() + "/libhazard_second_preload.so";
  const auto run = [](const std::string& preloads) {
    auto changes = default_tag;
    changes["LD_PRELOAD"] = preloads;
    return run_victim("second-preload", changes);
  };
  // Before ours it sees the program's call and passes it on to us; after ours there is nothing left to pass on.
  quiet(run(second + ":" + preload()), "1\n");
  quiet(run(preload() + ":" + second), "0\n");
}

TEST_CASE("one process never has two copies of the state", "[processes]") { quiet(run_victim("one-copy"), "1\n"); }

TEST_CASE("a bad configuration under a bare preload", "[processes]") {
  const Environment bad{{"LOWTIDE_CONF", "gate.drian:1s"}};
  SECTION("one warning, and off") {
    const auto ending = run_victim("untouched", bad);
    CHECK(ending.status == 0);
    CHECK(ending.output == "untouched\n");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "gate.drian"));
  }
  SECTION("a default tag that is no tag") {
    const auto ending = run_victim("untouched", {{"LOWTIDE_DEFAULT_TAG", "my weights"}});
    CHECK(ending.output == "untouched\n");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "my weights"));
  }
  SECTION("a default tag whose action nobody has said") {
    const auto ending = run_victim("untouched", {{"LOWTIDE_DEFAULT_TAG", "mine"}});
    CHECK(ending.output == "untouched\n");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "tag.mine.pause"));
  }
  SECTION("LOWTIDE_REQUIRE and a default tag whose action nobody has said") {
    const auto ending = run_victim("untouched", {{"LOWTIDE_DEFAULT_TAG", "mine"}, {"LOWTIDE_REQUIRE", "1"}});
    CHECK(ending.output == "cuInit answers " + std::to_string(CUDA_ERROR_NOT_INITIALIZED) + "\n");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "tag.mine.pause"));
  }
  SECTION("a default tag whose action is said in the environment") {
    quiet(run_victim("simple", {{"LOWTIDE_DEFAULT_TAG", "mine"}, {"LOWTIDE_CONF", "tag.mine.pause:keep"}}));
  }
  SECTION("LOWTIDE_REQUIRE makes cuInit fail") {
    auto required = bad;
    required["LOWTIDE_REQUIRE"] = "1";
    const auto ending = run_victim("untouched", required);
    CHECK(ending.status == 0);
    CHECK(ending.output == "cuInit answers " + std::to_string(CUDA_ERROR_NOT_INITIALIZED) + "\n");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "gate.drian"));
  }
  SECTION("LOWTIDE_REQUIRE with a good one changes nothing") {
    quiet(run_victim("simple", {{"LOWTIDE_REQUIRE", "1"}}));
  }
}

TEST_CASE("pausing that is off answers OK and keeps all", "[processes]") {
  quiet(run_victim("pausing-is-off", {{"LOWTIDE_BACKEND", "off"}}));
}

TEST_CASE("a backend that cannot be had", "[processes]") {
  SECTION("no such word: one warning, and off") {
    const auto ending = run_victim("untouched", {{"LOWTIDE_BACKEND", "vmn"}});
    CHECK(ending.output == "untouched\n");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "LOWTIDE_BACKEND"));
  }
  SECTION("not for this device: one warning, and its memory is left alone") {
    const auto ending = run_victim("left-alone", {{"LOWTIDE_BACKEND", "vmm+cycle"}});
    CHECK(ending.status == 0);
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "vmm, recreate, off"));
  }
  SECTION("virtual memory management does not work: one warning, and free and allocate does") {
    const auto ending = run_victim("recreated", {{"LOWTIDE_SIM_FAIL", "cuMemMap:1+"}});
    CHECK(ending.status == 0);
    CHECK(ending.output == "");
    CHECK(count_of(ending.errors, "\n") == 1);
    CHECK(says(ending.errors, "uses the backend recreate"));
  }
}

TEST_CASE("LOWTIDE_DISABLE passes through", "[processes]") {
  quiet(run_victim("untouched", {{"LOWTIDE_DISABLE", "1"}, {"LOWTIDE_DEFAULT_TAG", "weights"}}), "untouched\n");
}

TEST_CASE("the C API without a preload", "[processes]") {
  SECTION("the doors are not there") { quiet(run_victim("untouched", no_preload), "untouched\n"); }
  SECTION("memory of lowtide_malloc") { quiet(Child("hazards_victim", {"pluggable", "managed"}, no_preload).end()); }
}

TEST_CASE("lowtide_malloc under the preload", "[processes]") {
  quiet(Child("hazards_victim", {"pluggable", "managed"}).end());
}

TEST_CASE("lowtide_malloc after the device was reset", "[processes]") {
  SECTION("with a preload") { quiet(run_victim("pluggable-after-reset")); }
  SECTION("without") { quiet(run_victim("pluggable-after-reset", no_preload)); }
}

TEST_CASE("the C API before the first GPU call", "[processes]") { quiet(run_victim("before-first-call")); }

TEST_CASE("NULL and devices that are none, at every function of the C API", "[processes]") {
  quiet(run_victim("wrong-arguments"));
}

TEST_CASE("structs of other versions", "[processes]") { quiet(run_victim("struct-sizes")); }
