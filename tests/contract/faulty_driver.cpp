// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/faulty_driver.hpp"

#include <memory>
#include <string>

namespace lowtide::test {
namespace {

struct State {
  FaultyDriver::Plan plan;
  std::vector<DriverCall> calls;
  bool active = false;
};
State state;

template <class Table>
Table real_table;

/// The likeliest error of a function that takes memory, else one that means nothing. Both vendors number them alike.
template <class Result>
Result failure_of(std::string_view name) {
  static_assert(CUDA_ERROR_OUT_OF_MEMORY == static_cast<int>(hipErrorOutOfMemory));
  static_assert(CUDA_ERROR_UNKNOWN == static_cast<int>(hipErrorUnknown));
  const bool takes_memory = name == "cuMemCreate" || name == "cuMemAddressReserve" || name == "cuMemHostRegister_v2" ||
                            name == "cuMemHostAlloc" || name == "cuModuleLoadData" || name == "cuStreamCreate" ||
                            name == "hipMemCreate" || name == "hipMemAddressReserve" || name == "hipHostRegister" ||
                            name == "hipStreamCreateWithFlags";
  return static_cast<Result>(takes_memory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
}

template <auto Member>
struct Wrapped;

template <class Table, class Result, class... Arguments, Result (*Table::*Member)(Arguments...)>
struct Wrapped<Member> {
  static inline const char* name = "";

  static Result call(Arguments... arguments) {
    const auto real = real_table<Table>.*Member;
    if constexpr (std::is_enum_v<Result>) {
      if (state.active) return noted(real, arguments...);
    }  // else it describes errors, and its failure has no consequence
    return real(arguments...);
  }

  static Result noted(Result (*real)(Arguments...), Arguments... arguments) {
    const bool fails = state.plan && state.plan(state.calls.size(), name);
    state.calls.push_back({name, false});
    const auto index = state.calls.size() - 1;
    const auto result = fails ? failure_of<Result>(name) : real(arguments...);
    state.calls[index].ok = result == Result{};
    return result;
  }
};

}  // namespace

FaultyDriver::FaultyDriver(const cuda::Driver& real) {
  state = State{};
  real_table<cuda::Driver> = real;
#define DRIVER(function)                               \
  Wrapped<& cuda::Driver::function>::name = #function; \
  table_.function = &Wrapped<&cuda::Driver::function>::call;
#include "backends/cuda/driver.def"
#undef DRIVER
  table_.cuGetErrorName = real.cuGetErrorName;  // describes errors; its failure has no consequence
}

hip::Runtime faulty_runtime(const hip::Runtime& real) {
  real_table<hip::Runtime> = real;
  hip::Runtime table;
#define RUNTIME(function)                              \
  Wrapped<& hip::Runtime::function>::name = #function; \
  table.function = &Wrapped<&hip::Runtime::function>::call;
#include "backends/hip/runtime.def"
#undef RUNTIME
  return table;
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
