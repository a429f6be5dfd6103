// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <iterator>
#include <utility>

#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

struct ErrorText {
  hipError_t code;
  const char* name;
  const char* text;
};

constexpr ErrorText error_texts[] = {
#define SIM_ERROR(code, text) {code, #code, text},
#include "backends/simulated/hip/errors.def"
#undef SIM_ERROR
};

const ErrorText& look_up(hipError_t code) {
  for (const auto& error : error_texts) {
    if (error.code == code) return error;
  }
  return error_texts[std::size(error_texts) - 1];
}

struct FunctionEntry {
  const char* name;
  void* address;
};

const FunctionEntry functions[] = {
#define SIM_FUNCTION(name, version) {#name, reinterpret_cast<void*>(&::name)},
#include "backends/simulated/hip/functions.def"
#undef SIM_FUNCTION
};

// hipDriverProcAddressQueryResult
constexpr int found = 0;
constexpr int not_found = 1;

}  // namespace

extern "C" {

const char* hipGetErrorName(hipError_t error) { return look_up(error).name; }

const char* hipGetErrorString(hipError_t error) { return look_up(error).text; }

hipError_t hipGetLastError(void) { return std::exchange(runtime_thread().last_error, hipSuccess); }

hipError_t hipPeekAtLastError(void) { return runtime_thread().last_error; }

hipError_t hipGetProcAddress(const char* symbol, void** out, int, uint64_t, void* status) {
  if (symbol == nullptr || out == nullptr) return remember(hipErrorInvalidValue);
  *out = nullptr;
  for (const auto& function : functions) {
    if (std::strcmp(function.name, symbol) == 0) *out = function.address;
  }
  if (status != nullptr) *static_cast<int*>(status) = *out == nullptr ? not_found : found;
  return *out == nullptr ? remember(hipErrorInvalidValue) : hipSuccess;
}

}  // extern "C"
