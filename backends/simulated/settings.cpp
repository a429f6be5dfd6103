// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/settings.hpp"

#include <charconv>
#include <optional>

#include "allocator/base/env.hpp"
#include "backends/simulated/personas.hpp"

namespace lowtide::sim {
namespace {

/// A count of bytes: digits, and K, M, G or T for powers of 1024.
std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t unit = 1;
  constexpr std::string_view units = "KMGT";
  if (!text.empty()) {
    if (const auto at = units.find(text.back()); at != std::string_view::npos) {
      unit = std::uint64_t{1} << (10 * (at + 1));
      text.remove_suffix(1);
    }
  }
  std::uint64_t value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value > (std::uint64_t{1} << 47) / unit) return std::nullopt;
  return value * unit;
}

Failure bad(const char* variable, std::string_view value, const char* wanted) {
  return fail(Error::format(Code::config, "%s=%.*s: wanted %s", variable, static_cast<int>(value.size()), value.data(),
                            wanted));
}

}  // namespace

Result<Settings> read_settings() {
  Settings settings;
  settings.device_name = personas.front().device_name;
  if (const auto text = env("LOWTIDE_SIM_DEVICES")) {
    const auto devices = parse_size(*text);
    if (!devices || *devices < 1 || *devices > most_devices) return bad("LOWTIDE_SIM_DEVICES", *text, "1 to 16");
    settings.devices = static_cast<int>(*devices);
  }
  if (const auto text = env("LOWTIDE_SIM_MEMORY")) {
    const auto memory = parse_size(*text);
    if (!memory || *memory < granularity) return bad("LOWTIDE_SIM_MEMORY", *text, "bytes, 2M or more (512M, 8G)");
    settings.memory = *memory;
  }
  if (const auto text = env("LOWTIDE_SIM_PERSONA")) {
    const Persona* const persona = find_persona(*text);
    if (persona == nullptr) return bad("LOWTIDE_SIM_PERSONA", *text, persona_names);
    settings.device_name = persona->device_name;
  }
  if (const auto text = env("LOWTIDE_SIM_DIR")) settings.directory = *text;
  if (const auto text = env("LOWTIDE_SIM_FAIL")) settings.faults = *text;
  return settings;
}

}  // namespace lowtide::sim
