// SPDX-License-Identifier: Apache-2.0
#include "shim/backend_choice.hpp"

#include <algorithm>

#include "allocator/base/log.hpp"

namespace lowtide {
namespace {

using portable::Verdict;

class Choice {
 public:
  Choice(std::string_view forced, ContextId context) : forced_(forced), context_(context) {}

  Result<std::unique_ptr<Backend>> among(std::span<const Candidate> ladder) {
    for (const auto& candidate : ladder) {
      if (!is_in_question(candidate)) continue;
      auto backend = consider(candidate);
      if (!backend) return backend;
      if (!*backend) continue;
      if (forced_.empty() && candidate.name != ladder.front().name) {
        log(LogLevel::warning, "device %d (%s) uses the backend %s: %s", index_of((*backend)->device()),
            (*backend)->device_name().c_str(), (*backend)->name(), (*backend)->reason().c_str());
      }
      return backend;
    }
    return fail(nothing_left(ladder));
  }

 private:
  struct Rejection {
    std::string name;
    std::string why;
    bool for_good;  ///< another wish of that name would not help
  };

  bool is_in_question(const Candidate& candidate) const {
    if (!forced_.empty()) return candidate.name == forced_;
    return std::none_of(rejections_.begin(), rejections_.end(),
                        [&](const Rejection& one) { return one.name == candidate.name && one.for_good; });
  }

  /// Null if it was rejected.
  Result<std::unique_ptr<Backend>> consider(const Candidate& candidate) {
    auto backend = candidate.make(reason_of(candidate));
    if (!backend) return rejected(candidate, backend.error().message());
    if (auto status = (*backend)->attach(context_); !status) return fail(status.error());
    if (!(*backend)->capabilities().gives_back) return backend;

    const auto trial = portable::try_backend(**backend, candidate.trial);
    switch (trial.verdict) {
      case Verdict::works:
        if (trial.size >= candidate.least) return backend;
        return rejected(candidate, "the device had no room to try " + to_text(candidate.least));
      case Verdict::full: return fail(*trial.why);
      case Verdict::fails: return rejected(candidate, trial.why->message());
      case Verdict::undecided: break;
      case Verdict::frees_nothing:
      case Verdict::frees_with_address:
        if (forced_.empty()) return rejected(candidate, trial.why->message(), true);
    }
    backend->reset();
    auto noted = candidate.make(reason_of(candidate) + "; " + trial.why->message());
    if (!noted) return noted;
    if (auto status = (*noted)->attach(context_); !status) return fail(status.error());
    return noted;
  }

  std::unique_ptr<Backend> rejected(const Candidate& candidate, std::string why, bool for_good = false) {
    std::erase_if(rejections_, [&](const Rejection& one) { return one.name == candidate.name; });
    rejections_.push_back({candidate.name, std::move(why), for_good});
    return nullptr;
  }

  std::string reason_of(const Candidate& candidate) const {
    std::string reason = candidate.offer;
    for (const auto& [name, why, for_good] : rejections_) {
      reason += name == candidate.name ? "; no more than that" : "; no " + name;
      reason += ": " + why;
    }
    if (!forced_.empty()) reason += "; asked for by LOWTIDE_BACKEND";
    return reason;
  }

  Error nothing_left(std::span<const Candidate> ladder) const {
    if (!rejections_.empty()) {
      return Error::format(forced_.empty() ? Code::unsupported : Code::config, "%s cannot be had: %s",
                           rejections_.back().name.c_str(), rejections_.back().why.c_str());
    }
    std::string names;
    for (const auto& candidate : ladder) {
      if (!names.ends_with(candidate.name)) names += (names.empty() ? "" : ", ") + candidate.name;
    }
    return Error::format(Code::config, "LOWTIDE_BACKEND=%s is not for this device, which has %s", forced_.c_str(),
                         names.c_str());
  }

  const std::string forced_;
  const ContextId context_;
  std::vector<Rejection> rejections_;
};

}  // namespace

Result<std::unique_ptr<Backend>> choose_backend(std::span<const Candidate> ladder, std::string_view forced,
                                                ContextId context) {
  return Choice(forced, context).among(ladder);
}

}  // namespace lowtide
