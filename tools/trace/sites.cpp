// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/sites.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace lowtide::tools {
namespace {

constexpr std::size_t most_sites = 20;

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Libraries that everybody allocates through: what lies above them is who asked.
bool only_passes_on(const Place& place) {
  constexpr std::array prefixes{"liblowtide", "libcuda", "libcudart", "libamdhip64", "libc10", "libnvidia"};
  return place.native && std::any_of(prefixes.begin(), prefixes.end(),
                                     [&](const char* prefix) { return place.function.starts_with(prefix); });
}

std::string text_of(const Place& place) {
  if (place.native) return place.function;
  const auto line = place.line > 0 ? fmt::format(":{}", place.line) : std::string();  // not every interpreter tells it
  return fmt::format("{} ({}{})", place.function, name_of(place.file), line);
}

}  // namespace

Frames::Frames(const trace::Reader& reader, std::uint32_t process)
    : reader_(reader), process_(process), modules_(reader.modules(process)) {}

Place Frames::place(const trace::TracedFrame& frame) const {
  if (frame.address == 0) return {std::string(frame.function), std::string(frame.file), frame.line, false};
  // Later ones replace what they overlap.
  const auto module = std::find_if(modules_.rbegin(), modules_.rend(), [&](const trace::TracedModule& each) {
    return each.start <= frame.address && frame.address < each.end;
  });
  if (module == modules_.rend()) return {fmt::format("{:#x}", frame.address), "", 0, true};
  const auto offset = frame.address - module->start + module->offset;
  return {fmt::format("{}+{:#x}", name_of(module->path), offset), std::string(module->path), 0, true};
}

std::vector<Place> Frames::places(trace::StackId stack) const {
  std::vector<Place> places;
  for (const auto& frame : reader_.stack(process_, stack)) places.push_back(place(frame));
  return places;
}

void SiteCounter::allocated(const LiveBlock& block) {
  auto& count = counts_[key_of(block)];
  ++count.allocations;
  count.live += block.bytes;
  count.peak = std::max(count.peak, count.live);
}

void SiteCounter::freed(const LiveBlock& block) {
  const auto found = counts_.find(key_of(block));
  if (found != counts_.end()) found->second.live -= std::min(found->second.live, block.bytes);
}

std::vector<Site> SiteCounter::top(const trace::Reader& reader, std::uint32_t process,
                                   const Accounting& accounting) const {
  const Frames frames(reader, process);
  std::map<std::pair<std::string, std::string>, Site> sites;
  for (const auto& [key, count] : counts_) {
    if (key.stack == trace::StackId{}) continue;
    const auto places = frames.places(key.stack);
    const auto who = std::find_if_not(places.begin(), places.end(), only_passes_on);
    if (places.empty()) continue;
    const auto& series = accounting.state(key.state).series[key.series];
    const auto tag = series.kind == Series::Kind::tag ? series.name : std::string();
    auto& site = sites[{text_of(who == places.end() ? places.back() : *who), tag}];
    site.allocations += count.allocations;
    site.peak.value += count.peak;
  }
  std::vector<Site> top;
  for (auto& [key, site] : sites) {
    site.place = key.first;
    site.tag = key.second;
    top.push_back(std::move(site));
  }
  std::stable_sort(top.begin(), top.end(), [](const Site& a, const Site& b) { return a.peak > b.peak; });
  top.resize(std::min(top.size(), most_sites));
  return top;
}

}  // namespace lowtide::tools
