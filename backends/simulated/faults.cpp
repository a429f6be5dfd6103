// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/faults.hpp"

#include <charconv>

namespace lowtide::sim {
namespace {

/// What a failing call answers: the likeliest error of a function that takes memory, else one that means nothing.
CUresult failure_of(Function function) {
  switch (function) {
    case Function::cuMemAlloc_v2:
    case Function::cuMemAllocPitch_v2:
    case Function::cuMemAllocManaged:
    case Function::cuMemAllocAsync:
    case Function::cuMemAllocAsync_ptsz:
    case Function::cuMemHostAlloc:
    case Function::cuMemAllocHost_v2:
    case Function::cuMemHostRegister_v2:
    case Function::cuMemAddressReserve:
    case Function::cuMemCreate:
    case Function::cuDevicePrimaryCtxRetain:
    case Function::cuCtxCreate_v2:
    case Function::cuCtxCreate_v3:
    case Function::cuCtxCreate_v4:
    case Function::cuStreamCreate:
    case Function::cuStreamCreateWithPriority:
    case Function::cuEventCreate:
    case Function::cuModuleLoadData:
    case Function::cuModuleLoadDataEx: return CUDA_ERROR_OUT_OF_MEMORY;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace

std::optional<Faults::Rule> Faults::parse(std::string_view text) {
  Rule rule;
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto name = text.substr(0, colon);
  auto number = text.substr(colon + 1);
  if (number.ends_with('+')) {
    rule.for_good = true;
    number.remove_suffix(1);
  }
  const auto* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, rule.first);
  if (error != std::errc{} || stop != end || rule.first == 0) return std::nullopt;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (means(name, functions[i])) rule.matches.set(i);
  }
  if (rule.matches.none()) return std::nullopt;
  return rule;
}

bool Faults::plan(std::string_view text) {
  std::vector<Rule> rules;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto rule = parse(text.substr(0, comma));
    if (!rule) return false;
    rules.push_back(*rule);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  const std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
  for (auto& calls : calls_) calls.store(0, std::memory_order_relaxed);
  planned_.store(!rules_.empty(), std::memory_order_release);
  return true;
}

CUresult Faults::next(Function function) {
  calls_[index_of(function)].fetch_add(1, std::memory_order_relaxed);
  if (!planned_.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  bool fails = false;
  for (auto& rule : rules_) {
    if (!rule.matches.test(index_of(function))) continue;
    ++rule.seen;
    fails |= rule.for_good ? rule.seen >= rule.first : rule.seen == rule.first;
  }
  return fails ? failure_of(function) : CUDA_SUCCESS;
}

std::uint64_t Faults::calls(std::string_view name) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (means(name, functions[i])) sum += calls_[i].load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace lowtide::sim
