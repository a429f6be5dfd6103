// SPDX-License-Identifier: Apache-2.0
#include "shim/probe/selftest.hpp"

#include "backends/portable/contract.hpp"

namespace lowtide {
namespace {

using portable::Verdict;

void write_trial(JsonWriter& json, const portable::TrialReport& trial) {
  json.key("trial").begin_object();
  json.field("verdict", to_text(trial.verdict)).field("why", trial.why ? trial.why->message() : "");
  json.field("size", trial.size).field("attempts", trial.attempts).field("seconds", trial.time.count());
  json.key("address_came_back");
  if (trial.address_came_back)
    json.value(*trial.address_came_back);
  else
    json.null();
  json.field("descriptors_per_handle", trial.descriptors_per_handle);
  json.field("descriptors_left", trial.descriptors_left);
  json.end_object();
}

void write_checks(JsonWriter& json, Backend& backend) {
  json.key("checks").begin_array();
  for (const auto& [name, status] : portable::check_contract(backend)) {
    json.begin_object().field("name", name).field("ok", status.has_value());
    json.field("error", status ? "" : status.error().message()).end_object();
  }
  json.end_array();
}

void write_measures(JsonWriter& json, Backend& backend) {
  const auto measures = portable::measure(backend);
  json.key("measures").begin_object();
  if (measures) {
    json.field("largest_handle", measures->largest_handle).field("cycle", measures->cycle);
    json.field("moved", measures->moved);
    json.field("copy_out", measures->copy_out.count()).field("give", measures->give.count());
    json.field("get", measures->get.count()).field("copy_in", measures->copy_in.count());
  }
  json.field("error", measures ? "" : measures.error().message()).end_object();
}

/// Whether it is one to use.
bool write_backend(JsonWriter& json, Backend& backend, Bytes trial_size) {
  json.field("granularity", backend.capabilities().granularity);
  const bool gives_back = backend.capabilities().gives_back;
  const auto trial = gives_back ? portable::try_backend(backend, trial_size) : portable::TrialReport{Verdict::works};
  if (gives_back) write_trial(json, trial);
  if (trial.verdict == Verdict::fails || trial.verdict == Verdict::full) return false;
  write_checks(json, backend);
  if (gives_back) write_measures(json, backend);
  return trial.verdict == Verdict::works;
}

}  // namespace

void write_selftest(JsonWriter& json, std::span<const Candidate> ladder, ContextId context) {
  std::string done;
  json.key("candidates").begin_array();
  for (const auto& candidate : ladder) {
    if (candidate.name == done) continue;
    json.begin_object().field("backend", candidate.name).field("offer", candidate.offer);
    auto backend = candidate.make(candidate.offer);
    auto status = backend ? (*backend)->attach(context) : fail(backend.error());
    json.field("error", status ? "" : status.error().message());
    if (status && write_backend(json, **backend, candidate.trial)) done = candidate.name;
    json.end_object();
  }
  json.end_array();
}

}  // namespace lowtide
