// SPDX-License-Identifier: Apache-2.0
//
// A program with undefined references to the driver that names no library for them: the doors' exports satisfy them.
#include "tests/interpose/check.hpp"
#include "tests/interpose/cuda_abi.hpp"
#include "tests/interpose/fake_state.hpp"

using namespace lowtide::test;

namespace {

void without_a_driver_a_call_answers_so() {
  check(cuInit(0) == CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "cuInit");
  check(cuInit(0) == CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "cuInit again");
  check(::dlerror() == nullptr, "the program finds no message of ours");
  check(!FakeState().loaded(), "without a driver nothing is started");
}

void a_call_loads_the_driver() {
  check(cuInit(0) == CUDA_SUCCESS, "cuInit");
  check(FakeState().calls("init") == 1, "through the door");
  check(cuMemAllocManaged(nullptr, 0, 0) == CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "a name this driver lacks");
}

constexpr Scenario scenarios[] = {
    {"without_a_driver_a_call_answers_so", without_a_driver_a_call_answers_so},
    {"a_call_loads_the_driver", a_call_loads_the_driver},
};

}  // namespace

int main(int argc, char** argv) { return run_scenario(scenarios, argc, argv); }
