// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/backup/settings.hpp"
#include "allocator/base/log.hpp"
#include "allocator/base/result.hpp"
#include "allocator/core/settings.hpp"
#include "allocator/core/types.hpp"
#include "allocator/policy/match.hpp"
#include "allocator/policy/sync_settings.hpp"
#include "allocator/trace/settings.hpp"

namespace lowtide {

/// The settings of all layers. `Configuration{}` is empty; `built_in_configuration()` has the defaults.
struct Configuration {
  CoreSettings core;
  BackupSettings backup;
  DiskSettings disk;
  std::optional<TagName> default_tag;
  std::vector<std::string> unmanaged_callers;  ///< glob patterns of library file names, matched without their folder
  std::vector<MatchRule> rules;                ///< in the order in which they are tried
  LogLevel log = LogLevel::warning;
  std::string backend;  ///< of every device: vmm, vmm+cycle, recreate or off; "": what its trials say
  SyncSettings sync;
  TraceSettings trace;
  MetricsSettings metrics;
  std::set<TagName> tags_with_action;  ///< whose `pause` is built in or was configured
};

/// Where a configuration comes from; empty strings are absent. Later members win over earlier ones.
struct ConfigurationSources {
  std::optional<std::string> file;  ///< a TOML file
  std::string settings;             ///< "key:value,key:value"
  std::string default_tag;
  std::string log;      ///< off, error, warning, info or debug
  std::string backend;  ///< vmm, vmm+cycle, recreate or off
  std::string role;     ///< of this process
  std::string trace;    ///< as trace.file
  std::string metrics;  ///< as metrics.file
};

/// What LOWTIDE_CONFIG, LOWTIDE_CONF, LOWTIDE_DEFAULT_TAG, LOWTIDE_LOG, LOWTIDE_BACKEND, LOWTIDE_ROLE, LOWTIDE_TRACE
/// and LOWTIDE_METRICS say.
ConfigurationSources sources_from_environment();

/// What holds without any file or variable.
Configuration built_in_configuration();

/// The built-in configuration, changed by the sources. The first thing that is wrong is a Code::config that names the
/// source, the key, the value and what is allowed. Never throws.
Result<Configuration> load_configuration(const ConfigurationSources& sources) noexcept;

/// Sets one scalar key, as in LOWTIDE_CONF. On an error `configuration` is as it was. Never throws.
Status apply(Configuration& configuration, std::string_view key, std::string_view value) noexcept;

/// Whether what a pause does with `tag` was decided by somebody: built in or configured.
bool action_is_known(const Configuration& configuration, const TagName& tag);

/// Code::config if there is a default tag whose action is not known. To be asked when the program had its chance to
/// say it, not when the configuration is read. Never throws.
Status check_default_tag(const Configuration& configuration) noexcept;

}  // namespace lowtide
