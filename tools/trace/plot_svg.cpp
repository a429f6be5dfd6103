// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

#include "allocator/base/utf8.hpp"
#include "tools/trace/plot.hpp"
#include "tools/trace/plot_order.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

// Lengths are in pixels.
constexpr double width = 1000;
constexpr double left = 64;
constexpr double right = 16;
constexpr double height_of_curves = 190;
constexpr double height_of_strip = 16;
constexpr double line_height = 18;
constexpr std::size_t most_of_a_name = 64;

constexpr std::array tag_colours{"#3b7ddd", "#e8833a", "#35a36b", "#c94f6d", "#8a63d2", "#2aa5b8",
                                 "#b58b1b", "#d362b5", "#6f8f2f", "#5566cc", "#b0583f", "#3f8f8f"};
constexpr std::array unmanaged_colours{"#7f8ea3", "#a08c74", "#7d9a86", "#9a86a8"};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(utf8_prefix(text, most_of_a_name), most_of_a_name)) {
    if (c == '<' || c == '&' || c == '>' || c == '"') {
      safe += fmt::format("&#{};", static_cast<int>(c));
    } else {
      safe += c;
    }
  }
  return safe;
}

/// Between two marks of an axis up to `most`: 1, 2 or 5 times a power of ten, or a power of two; at most 5 fit.
double round_step(double most, int base) {
  double step = std::pow(base, std::floor(std::log(most / 5) / std::log(base)));
  if (base == 2) return step * 5 < most ? step * 2 : step;
  for (const double times : {1.0, 2.0, 5.0, 10.0}) {
    if (step * times * 5 >= most) return step * times;
  }
  return step;
}

class Picture {
 public:
  explicit Picture(const Profile& profile) : span_(span_of(profile)) {
    for (const auto& process : profile.processes) {
      for (const auto& device : process.devices) chart(title_of(process, device), device);
    }
  }

  std::string text() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"12\" fill=\"#1c2430\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"#ffffff\"/>\n{2}</svg>\n",
        width, top_ + 8, body_);
  }

 private:
  double x(std::int64_t time) const {
    const auto all = span_.seconds(span_.end);
    return left + (all > 0 ? (width - left - right) * std::max(span_.seconds(time), 0.0) / all : 0);
  }

  std::string colour(const Series& series) {
    if (series.kind == Series::Kind::others) return "#b9c0ca";
    if (series.kind == Series::Kind::unattributed) return "#dde2e8";
    const bool tag = series.kind == Series::Kind::tag;
    auto& known = tag ? tags_ : unmanaged_;
    const auto place = known.try_emplace(series.name, known.size()).first->second;
    return tag ? tag_colours[place % tag_colours.size()] : unmanaged_colours[place % unmanaged_colours.size()];
  }

  void words(double at, double y, std::string_view text, const char* anchor) {
    body_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at, y, anchor, escaped(text));
  }

  void strip(const DeviceProfile& device) {
    std::map<std::string, std::size_t> places;
    for (const auto& run : device.runs) {
      const double from = x(run.start);
      const double size = x(run.end) - from;
      if (size < 1) continue;
      const auto place = places.try_emplace(run.name, places.size()).first->second;
      body_ +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" opacity=\"0.3\"/>\n",
                      from, top_, size, height_of_strip, tag_colours[place % tag_colours.size()]);
      const auto letters = static_cast<std::size_t>(size / 7);
      if (letters >= 3) words(from + 3, top_ + 12, utf8_prefix(run.name, letters), "start");
    }
    top_ += height_of_strip;
  }

  void axis(std::uint64_t most) {
    const auto step = round_step(static_cast<double>(most), 2);
    for (double bytes = 0; bytes <= static_cast<double>(most); bytes += step) {
      const double y = top_ + height_of_curves * (1 - bytes / static_cast<double>(most));
      body_ += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#dfe4ea\"/>\n", left,
                           width - right, y);
      words(left - 6, y + 4, to_text(Bytes{static_cast<std::uint64_t>(bytes)}), "end");
    }
    const double seconds = span_.seconds(span_.end);
    if (seconds <= 0) return;
    for (double at = 0; at <= seconds; at += round_step(seconds, 10)) {
      const double place = left + (width - left - right) * at / seconds;
      words(place, top_ + height_of_curves + 15, fmt::format("{:.4g} s", at), at == 0 ? "start" : "middle");
    }
  }

  /// Steps along `upper` to the right, and back along `lower`.
  void area(const DeviceProfile& device, const std::vector<std::uint64_t>& lower,
            const std::vector<std::uint64_t>& upper, double scale, const std::string& fill) {
    const auto y = [&](std::uint64_t bytes) { return top_ + height_of_curves - static_cast<double>(bytes) * scale; };
    std::string path;
    const auto count = device.points.size();
    const auto until = [&](std::size_t i) {
      return i + 1 < count ? x(device.points[i + 1].time) : x(device.points[i].time);
    };
    for (std::size_t i = 0; i < count; ++i) {
      path += fmt::format("{}{:.1f} {:.1f}L{:.1f} {:.1f}", i == 0 ? 'M' : 'L', x(device.points[i].time), y(upper[i]),
                          until(i), y(upper[i]));
    }
    for (std::size_t i = count; i-- > 0;)
      path += fmt::format("L{:.1f} {:.1f}L{:.1f} {:.1f}", until(i), y(lower[i]), x(device.points[i].time), y(lower[i]));
    body_ += fmt::format("<path d=\"{}Z\" fill=\"{}\"/>\n", path, fill);
  }

  void legend(const Stack& stack) {
    double at = left;
    for (const auto& series : stack.series) {
      const double size = 26 + 7.0 * static_cast<double>(std::min(series.name.size(), most_of_a_name));
      if (at > left && at + size > width - right) {
        at = left;
        top_ += line_height;
      }
      body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" fill=\"{}\"/>\n", at, top_,
                           colour(series));
      words(at + 15, top_ + 10, series.name, "start");
      at += size;
    }
    top_ += line_height;
  }

  void chart(const std::string& title, const DeviceProfile& device) {
    if (device.points.empty()) return;
    const auto stack = stack_of(device);
    words(left, top_ + 14, title, "start");
    top_ += 22;
    strip(device);
    std::uint64_t most = 4;
    for (const auto& point : device.points) most = std::max(most, point.used);
    axis(most);
    std::vector<std::uint64_t> lower(device.points.size());
    for (std::size_t i = 0; i < stack.series.size(); ++i) {
      auto upper = lower;
      for (std::size_t j = 0; j < upper.size(); ++j) upper[j] += stack.bytes[i][j];
      area(device, lower, upper, height_of_curves / static_cast<double>(most), colour(stack.series[i]));
      lower = std::move(upper);
    }
    top_ += height_of_curves + 26;
    legend(stack);
    top_ += 14;
  }

  const Span span_;
  double top_ = 8;
  std::string body_;
  std::map<std::string, std::size_t> tags_;
  std::map<std::string, std::size_t> unmanaged_;
};

}  // namespace

std::string plot_svg(const Profile& profile) { return Picture(profile).text(); }

}  // namespace lowtide::tools
