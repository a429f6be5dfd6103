// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/configuration.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "allocator/base/env.hpp"
#include "allocator/policy/keys.hpp"
#include "allocator/policy/toml_file.hpp"
#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 5> log_words{"off", "error", "warning", "info", "debug"};
constexpr std::array<std::string_view, 4> backend_words{"vmm", "vmm+cycle", "recreate", "off"};

Status apply_settings(Configuration& configuration, std::string_view settings) {
  for (const auto part : split(settings, ',')) {
    const auto item = trimmed(part);
    if (item.empty()) continue;
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) {
      return fail(Error::format(Code::config, "LOWTIDE_CONF: \"%s\" is not key:value, as in tag.kv_cache.pause:discard",
                                shown(item, 80).c_str()));
    }
    const auto key = trimmed(item.substr(0, colon));
    const auto value = std::string(trimmed(item.substr(colon + 1)));
    if (const auto status = set_key(configuration, "LOWTIDE_CONF: ", key, value); !status) return status;
  }
  return {};
}

Status apply_default_tag(Configuration& configuration, std::string_view text) {
  if (text.empty()) return {};
  configuration.default_tag = TagName::parse(text);
  if (configuration.default_tag) return {};
  return fail(Error::format(Code::config, "LOWTIDE_DEFAULT_TAG: \"%s\" is not a tag name: 1 to 63 of A-Z a-z 0-9 _ -",
                            shown(text, 80).c_str()));
}

Status apply_backend(Configuration& configuration, std::string_view text) {
  if (!text.empty() && std::find(backend_words.begin(), backend_words.end(), text) == backend_words.end()) {
    return fail(Error::format(Code::config, "LOWTIDE_BACKEND: \"%s\" is not vmm, vmm+cycle, recreate or off%s",
                              shown(text, 40).c_str(), did_you_mean(text, backend_words).c_str()));
  }
  configuration.backend = text;
  return {};
}

Status apply_log(Configuration& configuration, std::string_view text) {
  if (text.empty()) return {};
  for (std::size_t i = 0; i < log_words.size(); ++i) {
    if (text != log_words[i]) continue;
    configuration.log = static_cast<LogLevel>(i);
    return {};
  }
  return fail(Error::format(Code::config, "LOWTIDE_LOG: \"%s\" is not off, error, warning, info or debug%s",
                            shown(text, 40).c_str(), did_you_mean(text, log_words).c_str()));
}

Status apply_role(Configuration& configuration, std::string_view text) {
  if (text.empty()) return {};
  configuration.sync.role = TagName::parse(text);
  if (configuration.sync.role) return {};
  return fail(Error::format(Code::config, "LOWTIDE_ROLE: \"%s\" is not a name: 1 to 63 of A-Z a-z 0-9 _ -",
                            shown(text, 80).c_str()));
}

Status apply_trace(Configuration& configuration, std::string_view text) {
  if (text.empty()) return {};
  return set_key(configuration, "LOWTIDE_TRACE: ", "trace.file", std::string(text));
}

Status apply_metrics(Configuration& configuration, std::string_view text) {
  if (text.empty()) return {};
  return set_key(configuration, "LOWTIDE_METRICS: ", "metrics.file", std::string(text));
}

Result<Configuration> load(const ConfigurationSources& sources) {
  auto configuration = built_in_configuration();
  if (sources.file) {
    if (auto status = apply_file(configuration, *sources.file); !status) return fail(status.error());
  }
  if (auto status = apply_settings(configuration, sources.settings); !status) return fail(status.error());
  if (auto status = apply_default_tag(configuration, sources.default_tag); !status) return fail(status.error());
  if (auto status = apply_log(configuration, sources.log); !status) return fail(status.error());
  if (auto status = apply_backend(configuration, sources.backend); !status) return fail(status.error());
  if (auto status = apply_role(configuration, sources.role); !status) return fail(status.error());
  if (auto status = apply_trace(configuration, sources.trace); !status) return fail(status.error());
  if (auto status = apply_metrics(configuration, sources.metrics); !status) return fail(status.error());
  return configuration;
}

std::string text_of_variable(const char* name) { return std::string(env(name).value_or("")); }

}  // namespace

ConfigurationSources sources_from_environment() {
  ConfigurationSources sources;
  if (const auto file = env("LOWTIDE_CONFIG")) sources.file = std::string(*file);
  sources.settings = text_of_variable("LOWTIDE_CONF");
  sources.default_tag = text_of_variable("LOWTIDE_DEFAULT_TAG");
  sources.log = text_of_variable("LOWTIDE_LOG");
  sources.backend = text_of_variable("LOWTIDE_BACKEND");
  sources.role = text_of_variable("LOWTIDE_ROLE");
  sources.trace = text_of_variable("LOWTIDE_TRACE");
  sources.metrics = text_of_variable("LOWTIDE_METRICS");
  return sources;
}

Configuration built_in_configuration() {
  Configuration configuration;
  constexpr std::pair<std::string_view, Action> actions[] = {{"weights", Action::offload},
                                                             {"lora", Action::offload},
                                                             {"cuda_graph", Action::offload},
                                                             {"kv_cache", Action::discard}};
  for (const auto& [name, action] : actions) {
    const auto tag = *TagName::parse(name);
    configuration.core.tags[tag].pause = action;
    configuration.tags_with_action.insert(tag);
  }
  // Derived data: an engine computes it anew as it goes.
  configuration.core.tags[*TagName::parse("kv_cache")].content = Content::scratch;
  configuration.unmanaged_callers = {"libnccl*",    "librccl*",   "libnvshmem*", "librocshmem*", "libuc[cmpst]*",
                                     "libmscclpp*", "libfabric*", "libmpi*",     "deep_ep_cpp*"};
  return configuration;
}

Result<Configuration> load_configuration(const ConfigurationSources& sources) noexcept {
  try {
    return load(sources);
  } catch (...) {
    return fail(Code::host_budget, "reading the configuration: out of host memory");
  }
}

Status apply(Configuration& configuration, std::string_view key, std::string_view value) noexcept {
  try {
    return set_key(configuration, "", trimmed(key), std::string(trimmed(value)));
  } catch (...) {
    return fail(Code::host_budget, "setting a key: out of host memory");
  }
}

bool action_is_known(const Configuration& configuration, const TagName& tag) {
  return configuration.tags_with_action.contains(tag);
}

Status check_default_tag(const Configuration& configuration) noexcept {
  const auto& tag = configuration.default_tag;
  if (!tag || action_is_known(configuration, *tag)) return {};
  return fail(Error::format(
      Code::config,
      "LOWTIDE_DEFAULT_TAG: what a pause does with the tag \"%s\" is not known: set tag.%s.pause to offload, "
      "discard or keep",
      tag->c_str(), tag->c_str()));
}

}  // namespace lowtide
