// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/profile.hpp"

#include <fmt/format.h>

namespace lowtide::tools {

std::string title_of(const ProcessProfile& process, const DeviceProfile& device) {
  auto title = process.pid == 0 ? std::string("log") : fmt::format("process {}", process.pid);
  if (!process.host.empty()) title += " on " + process.host;
  if (device.device >= 0) title += fmt::format(", device {}", device.device);
  return title;
}

}  // namespace lowtide::tools
