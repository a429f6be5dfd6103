// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/profile.hpp"

#include <fmt/format.h>

#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_of_a_host = 64;

}  // namespace

std::string title_of(const ProcessProfile& process, const DeviceProfile& device) {
  auto title = process.pid == 0 ? std::string("log") : fmt::format("process {}", process.pid);
  if (!process.host.empty()) title += " on " + printable(process.host, most_of_a_host);
  if (device.device >= 0) title += fmt::format(", device {}", device.device);
  return title;
}

}  // namespace lowtide::tools
