// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

/// The errors this driver can answer.
constexpr std::array error_texts{
#define SIM_ERROR(code, text) ErrorText{code, #code, text},
#include "backends/simulated/errors.def"
#undef SIM_ERROR
};

CUresult look_up(CUresult code, const char** out, const char* ErrorText::*member) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found =
      std::find_if(error_texts.begin(), error_texts.end(), [&](const auto& error) { return error.code == code; });
  *out = found == error_texts.end() ? nullptr : (*found).*member;
  return *out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGetErrorName(CUresult code, const char** out) {
  return answer(Function::cuGetErrorName, [&](Simulator&) { return look_up(code, out, &ErrorText::name); });
}

CUresult cuGetErrorString(CUresult code, const char** out) {
  return answer(Function::cuGetErrorString, [&](Simulator&) { return look_up(code, out, &ErrorText::text); });
}

}  // extern "C"
