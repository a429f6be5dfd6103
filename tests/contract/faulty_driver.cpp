// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/faulty_driver.hpp"

#include <memory>
#include <string>

namespace lowtide::test {
namespace {

struct State {
  cuda::Driver real;
  FaultyDriver::Plan plan;
  std::vector<DriverCall> calls;
  bool active = false;
};
State state;

/// The likeliest error of a function that takes memory, else one that means nothing.
CUresult failure_of(std::string_view name) {
  const bool takes_memory = name == "cuMemCreate" || name == "cuMemAddressReserve" || name == "cuMemHostRegister_v2" ||
                            name == "cuMemHostAlloc" || name == "cuModuleLoadData" || name == "cuStreamCreate";
  return takes_memory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

template <auto Member>
struct Wrapped;

template <class... Arguments, CUresult (*cuda::Driver::*Member)(Arguments...)>
struct Wrapped<Member> {
  static inline const char* name = "";

  static CUresult call(Arguments... arguments) {
    if (!state.active) return (state.real.*Member)(arguments...);
    const bool fails = state.plan && state.plan(state.calls.size(), name);
    state.calls.push_back({name, false});
    const auto index = state.calls.size() - 1;
    const auto result = fails ? failure_of(name) : (state.real.*Member)(arguments...);
    state.calls[index].ok = result == CUDA_SUCCESS;
    return result;
  }
};

}  // namespace

FaultyDriver::FaultyDriver(const cuda::Driver& real) {
  state = State{real, {}, {}, false};
#define DRIVER(function)                               \
  Wrapped<& cuda::Driver::function>::name = #function; \
  table_.function = &Wrapped<&cuda::Driver::function>::call;
#include "backends/cuda/driver.def"
#undef DRIVER
  table_.cuGetErrorName = real.cuGetErrorName;  // describes errors; its failure has no consequence
}

FaultyDriver::~FaultyDriver() { state.active = false; }

void FaultyDriver::start(Plan plan) {
  state.plan = std::move(plan);
  state.calls.clear();
  state.active = true;
}

std::vector<DriverCall> FaultyDriver::stop() {
  state.active = false;
  return std::move(state.calls);
}

FaultyDriver::Plan once(std::size_t index) {
  return [=](std::size_t now, std::string_view) { return now == index; };
}

FaultyDriver::Plan from(std::size_t index) {
  return [=](std::size_t now, std::string_view) { return now >= index; };
}

FaultyDriver::Plan function_from(std::size_t index) {
  auto which = std::make_shared<std::string>();
  return [=](std::size_t now, std::string_view name) {
    if (now == index) *which = name;
    return now >= index && name == *which;
  };
}

FaultyDriver::Plan once_and_next(std::size_t index, std::string_view later) {
  auto done = std::make_shared<bool>(false);
  return [=, later = std::string(later)](std::size_t now, std::string_view name) {
    if (now == index) return true;
    if (now < index || *done || name != later) return false;
    return *done = true;
  };
}

FaultyDriver::Plan both(std::size_t index, std::size_t later) {
  return [=](std::size_t now, std::string_view) { return now == index || now == later; };
}

}  // namespace lowtide::test
