// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/plot_order.hpp"

#include <limits>
#include <numeric>
#include <utility>

#include "tools/trace/phase_table.hpp"
#include "tools/view/counted.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_tags = 16;

std::uint64_t at(const Point& point, std::size_t series) {
  return series < point.bytes.size() ? point.bytes[series] : 0;
}

std::vector<std::uint64_t> peaks_of(const DeviceProfile& device) {
  std::vector<std::uint64_t> peaks(device.series.size());
  for (const auto& point : device.points) {
    for (std::size_t i = 0; i < peaks.size(); ++i) peaks[i] = std::max(peaks[i], at(point, i));
  }
  return peaks;
}

int layer_of(Series::Kind kind) {
  switch (kind) {
    case Series::Kind::tag: return 0;
    case Series::Kind::unmanaged: return 1;
    case Series::Kind::unattributed: return 2;
    default: return 3;
  }
}

std::vector<std::uint64_t> curve(const DeviceProfile& device, const std::vector<std::size_t>& of) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(device.points.size());
  for (const auto& point : device.points) {
    bytes.push_back(std::accumulate(of.begin(), of.end(), std::uint64_t{0},
                                    [&](std::uint64_t sum, std::size_t series) { return sum + at(point, series); }));
  }
  return bytes;
}

}  // namespace

Stack stack_of(const DeviceProfile& device) {
  const auto peaks = peaks_of(device);
  std::vector<std::size_t> order(device.series.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::size_t i) { return peaks[i] == 0 || !is_part(device.series[i]); });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto layers = std::pair(layer_of(device.series[a].kind), layer_of(device.series[b].kind));
    return layers.first != layers.second ? layers.first < layers.second : peaks[a] > peaks[b];
  });
  Stack stack;
  std::vector<std::size_t> small;
  for (const auto i : order) {
    const auto& series = device.series[i];
    if (series.kind == Series::Kind::tag && stack.series.size() == most_tags) {
      small.push_back(i);
      continue;
    }
    if (series.kind != Series::Kind::tag && !small.empty()) {
      stack.series.push_back({Series::Kind::tag, counted(small.size(), "smaller tag")});
      stack.bytes.push_back(curve(device, std::exchange(small, {})));
    }
    stack.series.push_back({series.kind, title_of(series)});
    stack.bytes.push_back(curve(device, {i}));
  }
  if (!small.empty()) {
    stack.series.push_back({Series::Kind::tag, counted(small.size(), "smaller tag")});
    stack.bytes.push_back(curve(device, small));
  }
  return stack;
}

Span span_of(const Profile& profile) {
  Span span{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const auto& process : profile.processes) {
    for (const auto& device : process.devices) {
      if (device.points.empty()) continue;
      span.start = std::min(span.start, device.points.front().time);
      span.end = std::max(span.end, device.points.back().time);
    }
  }
  return span.start > span.end ? Span{} : span;
}

}  // namespace lowtide::tools
