// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_save.hpp"

#include <algorithm>
#include <utility>

#include "allocator/backup/pages.hpp"
#include "allocator/backup/pinned_store.hpp"
#include "allocator/base/cpu_share.hpp"

namespace lowtide {
namespace {

/// Of a page's place in a slab. Copies are fast at any alignment that is not odd.
constexpr Bytes place_alignment{512};
/// Pages that are compared at once, while earlier ones are copied.
constexpr std::size_t pages_at_once = 1024;
/// The first time, when no copy runs yet.
constexpr std::size_t first_pages = 64;
constexpr unsigned most_threads = 16;

}  // namespace

Status PinnedSave::plan() {
  const BackupSettings settings = store_.settings();
  with_digests_ = settings.verify || settings.retain == BackupSettings::Retain::automatic;
  // Before pages are counted that could never be.
  if (auto status = reserve(at_least_missing()); !status) return status;
  planned_.resize(requests_.size());
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    plan_request(requests_[i], planned_[i]);
    for (const PinnedPage& page : planned_[i].pages) progress_.total += page.size;
    if (std::find(used_.begin(), used_.end(), requests_[i].backend) == used_.end())
      used_.push_back(requests_[i].backend);
  }
  return reserve(missing_for_pages());
}

/// A page lies in one slab, so that each ends with a part that was too small for the next page.
Bytes PinnedSave::missing_for_pages() const {
  const auto free = store_.arena().free_by_slab();
  auto slab = free.begin();
  Bytes room = free.empty() ? Bytes{} : *slab;
  Bytes made;
  for (const Planned& planned : planned_) {
    for (const PinnedPage& page : planned.pages) {
      const Bytes need = page.place ? Bytes{} : round_up(page.size, place_alignment);
      while (need > room) {
        if (slab != free.end() && ++slab != free.end()) {
          room = *slab;
        } else {
          room = Slab::usual_size;
          made += room;
        }
      }
      room -= need;
    }
  }
  return made.value > 0 ? made - room : Bytes{};
}

Bytes PinnedSave::at_least_missing() const {
  const Bytes content = content_of(requests_);
  const Bytes there = store_.arena().size();
  return content > there ? content - there : Bytes{};
}

Status PinnedSave::reserve(Bytes missing) {
  missing_ = round_up(missing, Slab::unit);
  if (missing_ <= reservation_.coming()) return {};
  reservation_ = {};
  auto reservation = store_.budget().reserve(missing_);
  if (!reservation) return fail(reservation.error());
  reservation_ = std::move(*reservation);
  return {};
}

void PinnedSave::plan_request(const SaveRequest& request, Planned& planned) {
  const auto* older = dynamic_cast<const PinnedBackup*>(request.backup.get());
  const std::span<const PinnedPage> there = older == nullptr ? std::span<const PinnedPage>() : older->pages();
  planned.reused.resize(there.size());
  std::size_t next = 0;
  for (const AddressRange& content : request.content) {
    Bytes offset = content.start - request.start;
    const Bytes end = offset + content.size;
    while (offset < end) {
      PinnedPage page{offset, page_size(offset, end - offset), {}, {}, {}};
      offset += page.size;
      while (next < there.size() && there[next].offset < page.offset) ++next;
      if (next < there.size() && there[next].offset == page.offset && there[next].size == page.size) {
        page = there[next];
        planned.reused[next] = true;
      }
      planned.pages.push_back(page);
    }
  }
}

void PinnedSave::adopt() {
  std::vector<std::unique_ptr<PinnedBackup>> made;
  made.reserve(requests_.size());
  std::size_t pages = 0;
  for (const Planned& planned : planned_) pages += planned.pages.size();
  work_.reserve(pages);  // from the first request that is changed on, nothing may throw
  for (std::size_t i = 0; i < requests_.size(); ++i) made.push_back(std::make_unique<PinnedBackup>(store_));
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (auto* older = dynamic_cast<PinnedBackup*>(requests_[i].backup.get())) {
      for (std::size_t page = 0; page < older->pages().size(); ++page) {
        if (planned_[i].reused[page]) older->pages()[page].place = {};
      }
    }
    made[i]->pages() = std::move(planned_[i].pages);
    requests_[i].backup = std::move(made[i]);
    for (PinnedPage& page : static_cast<PinnedBackup&>(*requests_[i].backup).pages()) {
      work_.push_back({requests_[i].backend, requests_[i].start + page.offset, &page});
    }
  }
}

Status PinnedSave::copy() {
  adopt();
  if (requests_.empty()) return {};
  if (missing_.value > 0) {
    const unsigned share = usable_processors("") / store_.budget().pausing_processes();
    // The rest is for this thread, which registers and fills what they make: a processor that it waits for costs more
    // than one that they lack.
    const unsigned threads = std::clamp(share - share / 8, 1u, most_threads);
    maker_.emplace(source(*requests_.front().backend, reservation_), store_.right_of_way(), missing_, threads);
  }
  std::size_t at_once = first_pages;
  for (std::span<const Work> rest = work_; !rest.empty(); at_once = pages_at_once) {
    const auto other =
        std::find_if(rest.begin(), rest.end(), [&](const Work& w) { return w.backend != rest.front().backend; });
    const auto part = rest.first(std::min(at_once, static_cast<std::size_t>(other - rest.begin())));
    if (auto status = copy_part(part); !status) return status;
    rest = rest.subspan(part.size());
  }
  return flush();
}

Status PinnedSave::copy_part(std::span<const Work> part) {
  unchanged_.assign(part.size(), false);
  if (auto status = compare(part); !status) return status;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const Work& work = part[i];
    if (unchanged_[i]) {
      tell(work.page->size);
      continue;
    }
    if (auto status = place(*work.backend, *work.page); !status) return status;
    if (auto status = add_to_run(work); !status) return status;
  }
  return {};
}

Status PinnedSave::compare(std::span<const Work> part) {
  if (!with_digests_) {
    for (const Work& work : part) work.page->state = PinnedPage::Digest::none;
    return {};
  }
  Backend& backend = *part.front().backend;
  ranges_.clear();
  for (const Work& work : part) ranges_.push_back({work.address, work.page->size});
  digests_.resize(part.size());
  const auto status = backend.digest(ranges_, digests_);
  if (!status && status.error().code() != Code::unsupported) return status;
  const bool verify = store_.settings().verify;
  for (std::size_t i = 0; i < part.size(); ++i) {
    PinnedPage& page = *part[i].page;
    unchanged_[i] = status && page.state == PinnedPage::Digest::known && page.digest == digests_[i] &&
                    (!verify || digest_of(page.place.memory, page.size.value, backend.digest_key()) == page.digest);
    if (unchanged_[i]) continue;
    page.state = status ? PinnedPage::Digest::pending : PinnedPage::Digest::none;
    page.digest = digests_[i];
  }
  return {};
}

Status PinnedSave::place(Backend& backend, PinnedPage& page) {
  PinnedArena& arena = store_.arena();
  const Bytes size = round_up(page.size, place_alignment);
  while (!page.place) {
    if (const auto place = arena.take(size)) {
      page.place = *place;
      return {};
    }
    auto slab = maker_ ? maker_->next() : Result<std::unique_ptr<Slab>>(nullptr);
    if (slab && !*slab) slab = make_small(backend);
    if (!slab) return fail(slab.error());
    if (!(*slab)->registered()) store_.tell_of_slow_copies();
    arena.add(std::move(*slab));
  }
  return {};
}

/// Where free memory is in smaller pieces than it was taken for, more is needed than was planned.
Result<std::unique_ptr<Slab>> PinnedSave::make_small(Backend& backend) {
  auto more = store_.budget().reserve(Slab::unit);
  if (!more) return fail(more.error());
  auto slab = Slab::make(source(backend, *more), Slab::unit);
  if (slab) (*slab)->register_with_driver();
  return slab;
}

Status PinnedSave::add_to_run(const Work& work) {
  const PinnedPage& page = *work.page;
  // A driver refuses a copy that begins in registered memory and ends outside of that registration.
  const bool follows = !begins_reservation(*work.backend, page.offset) && run_.backend == work.backend &&
                       run_.slab == page.place.slab && run_.range.end() == work.address &&
                       run_.host + run_.range.size.value == page.place.memory;
  if (!follows) {
    if (auto status = flush(); !status) return status;
    run_ = {work.backend, page.place.slab, page.place.memory, {work.address, {}}};
  }
  run_.range.size += page.size;
  return {};
}

Status PinnedSave::flush() {
  if (run_.backend == nullptr) return {};
  const Run run = std::exchange(run_, {});
  if (auto status = run.backend->copy_out(run.host, run.range); !status) return status;
  unfinished_ += run.range.size;
  if (progress_sink_ && unfinished_ > in_flight_when_told + in_flight_when_told) {
    if (auto status = run.backend->limit_copies(in_flight_when_told); !status) return status;
    const Bytes done = unfinished_ - in_flight_when_told;
    unfinished_ = in_flight_when_told;
    tell(done);
  }
  return {};
}

void PinnedSave::tell(Bytes more) {
  progress_.done += more;
  if (progress_sink_) progress_sink_(progress_);
}

bool PinnedSave::finish(Status& result) {
  bool all_ended = true;
  for (Backend* backend : used_) {
    auto status = backend->finish_copies();
    if (status) continue;
    if (result) result = status;
    if (!backend->finish_copies()) all_ended = false;  // once more: now only to know that nothing is in flight
  }
  if (!result) return all_ended;
  if (unfinished_.value > 0) tell(unfinished_);
  const bool verify = store_.settings().verify;
  for (SaveRequest& request : requests_) {
    auto& backup = static_cast<PinnedBackup&>(*request.backup);
    backup.set_parked(true);
    for (PinnedPage& page : backup.pages()) {
      // Where the device cannot say, the host's copy is asked.
      if (verify && page.state == PinnedPage::Digest::none)
        page.digest = digest_of(page.place.memory, page.size.value, request.backend->digest_key());
      if (verify || page.state == PinnedPage::Digest::pending) page.state = PinnedPage::Digest::known;
    }
  }
  return all_ended;
}

}  // namespace lowtide
