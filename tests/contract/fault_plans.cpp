// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/fault_plans.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "tests/sanitized.hpp"

namespace lowtide::test {
namespace {

/// These surround every other call: a pair that starts with one tells nothing that a pair with its neighbour does not.
bool surrounds_others(std::string_view name) {
  return name == "cuCtxPushCurrent_v2" || name == "cuCtxPopCurrent_v2" || name == "cuThreadExchangeStreamCaptureMode" ||
         name == "hipGetDevice" || name == "hipSetDevice" || name == "hipThreadExchangeStreamCaptureMode";
}

/// Of the calls that are made to fail, every how many-th is the first of a pair.
constexpr std::size_t pair_step = sanitized ? 16 : 1;

std::string number(std::size_t index) { return "call " + std::to_string(index); }

}  // namespace

std::size_t for_each_fault(const FaultRun& run) {
  const bool every_pair = std::getenv("LOWTIDE_TEST_LONG") != nullptr;
  const auto calls = run({}, "no call");
  std::size_t runs = 1;
  std::size_t first_calls = 0;
  for (std::size_t k = 0; k < calls.size(); k += fault_step) {
    const std::string name = number(k) + ", " + calls[k].name;
    const auto then = run(once(k), name);
    run(from(k), name + " and all later calls");
    run(function_from(k), name + " and all later ones of the function");
    runs += 3;
    if (surrounds_others(calls[k].name) || first_calls++ % pair_step != 0) continue;
    std::set<std::string> seen;
    for (std::size_t later = k + 1; later < then.size(); ++later) {
      const std::string second = then[later].name;
      if (every_pair) {
        run(both(k, later), name + " and " + number(later) + ", " + second);
      } else if (seen.insert(second).second) {
        run(once_and_next(k, second), name + " and the next " + second);
      } else {
        continue;
      }
      ++runs;
    }
  }
  return runs;
}

bool succeeded(const std::vector<DriverCall>& calls, std::string_view name) {
  return std::any_of(calls.begin(), calls.end(), [&](const DriverCall& call) { return call.ok && name == call.name; });
}

}  // namespace lowtide::test
