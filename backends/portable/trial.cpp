// SPDX-License-Identifier: Apache-2.0
#include "backends/portable/trial.hpp"

#include <dirent.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>

#include "allocator/core/trial_memory.hpp"

namespace lowtide::portable {
namespace {

constexpr int most_attempts = 16;
/// By how many attempts one answer must be ahead of the other.
constexpr int lead = 3;
constexpr int looks_for_none = 5;
/// What tells the sizes of a trial apart, and how far from a size its rise may be: drivers round, and keep tables.
constexpr Bytes unit = 2_MiB;
constexpr std::uint64_t sizes = 5;

int open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  int count = 0;
  while (folder && ::readdir(folder.get()) != nullptr) ++count;
  return count;
}

/// By how much free memory rose.
enum class Rise { none, whole, other };

/// What one life showed.
struct Seen {
  Rise rise = Rise::other;
  Rise rise_with_address = Rise::other;
  std::optional<bool> address_came_back;
  std::optional<int> descriptors;  ///< that the handle took
  int descriptors_left = 0;
};

/// One block's life: everything a pause and a resume need.
class Life : private TrialMemory {
 public:
  using TrialMemory::TrialMemory;

  Status live(Seen& seen) {
    const int before = open_descriptors();
    if (auto status = reserve(); !status) return status;
    if (auto status = take(backend_.create(range_)); !status) return status;
    seen.descriptors = open_descriptors() - before;
    if (auto status = show(0xa5, 0x5a); !status) return status;
    if (auto status = measure(seen.rise, [this] { return park(); }); !status) return status;
    seen.descriptors_left = open_descriptors() - before;
    if (seen.rise == Rise::none && !backend_.capabilities().reserves_each)
      return measure(seen.rise_with_address, [this] { return release_reservation(); });
    return come_back(seen);
  }

 private:
  /// Maps what was created, and looks whether both ends hold what the device writes.
  Status show(std::uint8_t head, std::uint8_t tail) {
    if (auto status = map(); !status) return status;
    if (auto status = backend_.set_access(range_, {}); !status) return status;
    const Bytes last = size_ - Bytes{bytes_.size()};
    if (auto status = backend_.fill({range_.start, {bytes_.size()}}, head); !status) return status;
    if (auto status = backend_.fill({range_.start + last, {bytes_.size()}}, tail); !status) return status;
    for (const auto& [offset, value] : {std::pair{Bytes{}, head}, std::pair{last, tail}}) {
      const auto right = reads(offset, value);
      if (!right) return fail(right.error());
      if (!*right) return fail(Code::unsupported, "mapped memory does not hold what is written to it");
    }
    return {};
  }

  Status take_away() {
    if (auto status = unmap(); !status) return status;
    return release();
  }

  Status park() {
    if (auto status = take_away(); !status) return status;
    if (!backend_.capabilities().reserves_each) return {};
    return backend_.keep_address(range_);
  }

  Status come_back(Seen& seen) {
    auto status = take(backend_.create(range_));
    const bool moved = !status && status.error().code() == Code::moved;
    if (status || moved) seen.address_came_back = !moved;
    if (moved && !backend_.capabilities().stable_address) return {};
    if (status) status = show(0x3c, 0xc3);
    return status ? take_away() : status;
  }

  template <class Action>
  Status measure(Rise& rise, Action action) {
    const auto before = backend_.memory_info();
    if (!before) return fail(before.error());
    if (auto status = action(); !status) return status;
    // That nothing comes free is seen by a while in which nothing changes: at one look a neighbour that takes as much
    // as was given back is the same, and so is a driver that takes its time.
    for (int look = 0; look < looks_for_none; ++look) {
      if (look > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto after = backend_.memory_info();
      if (!after) return fail(after.error());
      rise = kind_of(before->free, after->free);
      if (rise != Rise::none) break;
    }
    return {};
  }

  Rise kind_of(Bytes before, Bytes after) const {
    const Bytes near{std::min(unit.value, size_.value / 4)};
    const auto is_near = [&](Bytes a, Bytes b) { return a <= b + near && b <= a + near; };
    if (is_near(after, before + size_)) return Rise::whole;
    return is_near(after, before) ? Rise::none : Rise::other;
  }
};

class Trial {
 public:
  Trial(Backend& backend, Bytes usual)
      : backend_(backend),
        usual_(usual),
        random_(static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count())),
        first_(random_()) {}

  TrialReport run() {
    const auto start = std::chrono::steady_clock::now();
    while (report_.attempts < most_attempts && !is_decided()) attempt();
    judge();
    report_.descriptors_per_handle = std::max(0, descriptors_.value_or(0));
    report_.descriptors_left = std::max(0, descriptors_left_.value_or(0));
    report_.time = std::chrono::steady_clock::now() - start;
    return report_;
  }

 private:
  bool is_decided() const { return failed_ >= 2 || rose_ >= stayed_ + lead || stayed_ >= rose_ + lead; }

  /// Processes that begin at once do not go through the sizes alike.
  Bytes next_size() const {
    const Bytes granule = backend_.capabilities().granularity;
    if (is_tight_) return granule;
    const auto step = (first_ + static_cast<std::uint64_t>(report_.attempts)) % sizes;
    const Bytes whole = std::max(granule, backend_.capabilities().extent_step);
    return round_up(usual_ + std::max(std::max(unit, granule) * 3, whole) * step, whole);
  }

  void attempt() {
    report_.size = next_size();
    ++report_.attempts;
    const bool had_room = has_room();
    Seen seen;
    const auto status = Life(backend_, report_.size).live(seen);
    note(seen);
    if (!status) {
      report_.why = status.error();
      // A driver that has the room, and refuses, is not one whose device is full.
      if (status.error().code() == Code::device_memory && !(had_room && has_room())) {
        is_tight_ = true;
        ++full_;
        wait();
      } else {
        ++failed_;
      }
    } else if (seen.rise == Rise::other) {
      wait();
    } else {
      (seen.rise == Rise::whole ? rose_ : stayed_) += 1;
      with_address_ += seen.rise_with_address == Rise::whole ? 1 : 0;
    }
  }

  bool has_room() const {
    const auto memory = backend_.memory_info();
    return memory && memory->free >= std::max(report_.size, usual_) * 4;
  }

  void note(const Seen& seen) {
    if (seen.address_came_back) report_.address_came_back = seen.address_came_back;
    if (!seen.descriptors) return;
    // Other threads open files meanwhile: the least is nearest to the truth.
    descriptors_ = std::min(*seen.descriptors, descriptors_.value_or(*seen.descriptors));
    descriptors_left_ = std::min(seen.descriptors_left, descriptors_left_.value_or(seen.descriptors_left));
  }

  /// Neighbours that do the same get out of step.
  void wait() {
    const auto most = 1u << std::min(report_.attempts, 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(random_() % most + 1));
  }

  void judge() {
    if (failed_ >= 2) {
      report_.verdict = Verdict::fails;
    } else if (stayed_ >= rose_ + lead) {
      const bool needs_address = with_address_ * 2 > stayed_;
      report_.verdict = needs_address ? Verdict::frees_with_address : Verdict::frees_nothing;
      report_.why = Error(Code::unsupported, needs_address ? "memory comes free only when its address goes too"
                                                           : "free memory does not rise: a pause would free nothing");
    } else if (rose_ > stayed_) {
      report_.verdict = Verdict::works;
      report_.why.reset();
    } else if (full_ == report_.attempts) {
      report_.verdict = Verdict::full;
    } else {
      report_.verdict = Verdict::undecided;
      report_.why = Error::format(Code::busy,
                                  "whether memory comes free could not be seen: others changed the device's free "
                                  "memory at %d of %d attempts",
                                  report_.attempts - rose_ - stayed_ - full_ - failed_, report_.attempts);
    }
  }

  Backend& backend_;
  const Bytes usual_;
  std::minstd_rand random_;
  const std::uint64_t first_;
  TrialReport report_;
  bool is_tight_ = false;
  int rose_ = 0;
  int stayed_ = 0;
  int with_address_ = 0;
  int failed_ = 0;
  int full_ = 0;
  std::optional<int> descriptors_;
  std::optional<int> descriptors_left_;
};

}  // namespace

TrialReport try_backend(Backend& backend, Bytes usual) { return Trial(backend, usual).run(); }

const char* to_text(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::works: return "works";
    case Verdict::fails: return "fails";
    case Verdict::frees_nothing: return "frees nothing";
    case Verdict::frees_with_address: return "frees with the address";
    case Verdict::full: return "full";
    case Verdict::undecided: return "undecided";
  }
  return "?";
}

}  // namespace lowtide::portable
