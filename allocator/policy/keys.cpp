// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/keys.hpp"

#include <algorithm>
#include <array>

#include "allocator/policy/content_keys.hpp"
#include "allocator/policy/sync_keys.hpp"
#include "allocator/policy/trace_keys.hpp"
#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 3> pause_words{"keep", "offload", "discard"};
constexpr std::array<std::string_view, 3> fill_words{"none", "zero", "poison"};
constexpr std::array<std::string_view, 2> store_words{"host", "disk"};
constexpr std::array<std::string_view, 2> paused_access_words{"fault", "host"};
constexpr std::array<std::string_view, 2> retain_words{"auto", "none"};
constexpr std::array<std::string_view, 2> verify_words{"true", "false"};
constexpr std::string_view a_duration = "a duration such as 20s, 500ms, 2m or 0";

bool set_pause(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto action : {Action::keep, Action::offload, Action::discard}) {
    if (value != to_text(action)) continue;
    configuration.core.tags[tag].pause = action;
    configuration.tags_with_action.insert(tag);
    return true;
  }
  return false;
}

bool set_fill(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto fill : {Fill::none, Fill::zero, Fill::poison}) {
    if (value != to_text(fill)) continue;
    configuration.core.tags[tag].fill = fill;
    return true;
  }
  return false;
}

bool set_store(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto place : {Place::host, Place::disk}) {
    if (value != to_text(place)) continue;
    configuration.core.tags[tag].store = place;
    return true;
  }
  return false;
}

bool set_paused_access(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto access : {PausedAccess::fault, PausedAccess::host}) {
    if (value != to_text(access)) continue;
    configuration.core.tags[tag].paused_access = access;
    return true;
  }
  return false;
}

bool set_disk_path(Configuration& configuration, const TagName&, std::string_view value) {
  if (!value.starts_with('/') || value.find('\0') != std::string_view::npos) return false;
  configuration.disk.path = value;
  return true;
}

template <auto member>
bool set_duration(Configuration& configuration, const TagName&, std::string_view value) {
  const auto duration = parse_duration(value);
  if (duration) configuration.core.*member = *duration;
  return duration.has_value();
}

bool set_slack(Configuration& configuration, const TagName&, std::string_view value) {
  const auto slack = parse_size(value);
  if (slack) configuration.core.device_slack = *slack;
  return slack.has_value();
}

bool set_verify(Configuration& configuration, const TagName&, std::string_view value) {
  if (value != "true" && value != "false") return false;
  configuration.backup.verify = value == "true";
  return true;
}

bool set_retain(Configuration& configuration, const TagName&, std::string_view value) {
  using Retain = BackupSettings::Retain;
  if (value != "auto" && value != "none") return false;
  configuration.backup.retain = value == "auto" ? Retain::automatic : Retain::none;
  return true;
}

bool set_budget(Configuration& configuration, const TagName&, std::string_view value) {
  const auto budget = parse_size(value);
  if (!budget && value != "none") return false;
  configuration.backup.budget = budget;
  return true;
}

bool set_unmanaged_callers(Configuration& configuration, const std::vector<std::string>& patterns) {
  const auto is_file_name = [](const std::string& pattern) {
    return !pattern.empty() && pattern.find('/') == std::string::npos && pattern.find('\0') == std::string::npos;
  };
  if (!std::all_of(patterns.begin(), patterns.end(), is_file_name)) return false;
  configuration.unmanaged_callers = patterns;
  return true;
}

constexpr std::array table{
    Key{"tag.NAME.pause", "keep, offload or discard",
        "`offload` for weights, lora and cuda_graph, `discard` for kv_cache; any other tag: `offload`",
        "What a pause does with the tag's blocks: leave them, copy them to the host, or drop their bytes.", pause_words,
        set_pause, nullptr},
    Key{"tag.NAME.fill", "none, zero or poison", "`none`",
        "What dropped blocks hold after a resume: whatever the driver gives, zeros, or a pattern that shows a stale "
        "read.",
        fill_words, set_fill, nullptr},
    Key{"tag.NAME.store", "host or disk", "`host`",
        "Where a pause copies the tag's blocks to: host memory, or a file on disk, which takes no host memory and is "
        "slower.",
        store_words, set_store, nullptr},
    Key{"tag.NAME.paused_access", "fault or host", "`fault`",
        "What a kernel or a copy meets at an offloaded block that is parked: nothing, which is an illegal access, or "
        "the block's bytes in host memory, which it may read. `host` comes before `tag.NAME.store`.",
        paused_access_words, set_paused_access, nullptr},
    Key{"disk.path",
        "an absolute path of a folder",
        "`$TMPDIR`, else the first of /var/tmp and /tmp that can be written to",
        "Where the files of `tag.NAME.store = disk` are made. They have no name and end with the process.",
        {},
        set_disk_path,
        nullptr},
    Key{"device.wait",
        a_duration,
        "`0`",
        "How long a resume waits for free device memory before it fails.",
        {},
        set_duration<&CoreSettings::device_wait>,
        nullptr},
    Key{"device.slack",
        "a size such as 64GiB or 512MiB, or 0",
        "`256MiB`",
        "The most memory that the joined extents of a tag hold for no block before a resume joins no more.",
        {},
        set_slack,
        nullptr},
    Key{"gate.drain",
        a_duration,
        "`10s`",
        "How long a hold waits for the process to come to rest; after that the hold is undone.",
        {},
        set_duration<&CoreSettings::gate_drain>,
        nullptr},
    Key{"host.retain", "auto or none", "`auto`",
        "What becomes of host memory that held a backup: kept for the next pause, as long as every pause fits beside "
        "it, or given back at the resume.",
        retain_words, set_retain, nullptr},
    Key{"host.budget",
        "a size such as 64GiB or 512MiB, or none",
        "`none`",
        "The most host memory that all processes of this node together hold for backups. A pause that needs more is "
        "refused; so is one that the host or a control group has no room for.",
        {},
        set_budget,
        nullptr},
    Key{"backup.verify", "true or false", "`false`",
        "Whether a backup is checked by its digests: a resume whose bytes are not those that were copied out fails "
        "with "
        "CORRUPT.",
        verify_words, set_verify, nullptr},
    Key{"unmanaged.callers",
        "an array, in the file, of file name patterns without folders, such as [\"libnccl*\"]",
        "NCCL, RCCL, NVSHMEM, rocSHMEM, UCX, MSCCL++, libfabric, MPI, DeepEP",
        "Libraries whose allocations stay theirs under a default tag: their memory is known to others by its physical "
        "pages. Replaces the default list.",
        {},
        nullptr,
        set_unmanaged_callers},
};

struct Match {
  const Key* key = nullptr;
  TagName tag{};
};

// `parts` is a key, or the start of one, whose NAME is a tag.
bool agrees(const std::vector<std::string_view>& pattern, const std::vector<std::string_view>& parts) {
  if (parts.size() > pattern.size()) return false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool fits = pattern[i] == "NAME" ? TagName::parse(parts[i]).has_value() : pattern[i] == parts[i];
    if (!fits) return false;
  }
  return true;
}

Match find(std::string_view name) {
  const auto parts = split(name, '.');
  for (const auto keys : configuration_keys()) {
    for (const auto& key : keys) {
      const auto pattern = split(key.name, '.');
      if (parts.size() != pattern.size() || !agrees(pattern, parts)) continue;
      Match match{&key};
      if (pattern.size() == 3) match.tag = *TagName::parse(parts[1]);
      return match;
    }
  }
  return {};
}

// The key that was most likely meant, with the tag that was written.
std::string suggestion(std::string_view name) {
  const auto parts = split(name, '.');
  const std::string tag = parts.size() > 1 && TagName::parse(parts[1]) ? std::string(parts[1]) : "NAME";
  std::vector<std::string> candidates;
  for (const auto keys : configuration_keys()) {
    for (const auto& key : keys) {
      std::string candidate(key.name);
      if (const auto at = candidate.find("NAME"); at != std::string::npos) candidate.replace(at, 4, tag);
      candidates.push_back(std::move(candidate));
    }
  }
  for (const auto& candidate : candidates) {
    if (candidate.starts_with(std::string(name) + '.')) return candidate;
  }
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  return std::string(nearest(name, views));
}

Error bad_value(std::string_view where, std::string_view name, const Key& key, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  const std::string what = text == nullptr ? "this array" : '"' + shown(*text, 40) + '"';
  const std::string hint = text == nullptr ? "" : did_you_mean(*text, key.choices);
  return Error::format(Code::config, "%s%s: %s is not %s%s", std::string(where).c_str(), shown(name, 80).c_str(),
                       what.c_str(), std::string(key.allowed).c_str(), hint.c_str());
}

}  // namespace

std::array<std::span<const Key>, 4> configuration_keys() noexcept {
  return {table, content_keys(), sync_keys(), trace_keys()};
}

bool is_table_of_keys(std::string_view name) {
  const auto parts = split(name, '.');
  const auto begins = [&](const Key& key) {
    const auto pattern = split(key.name, '.');
    return parts.size() < pattern.size() && agrees(pattern, parts);
  };
  const auto tables = configuration_keys();
  return std::any_of(tables.begin(), tables.end(),
                     [&](const auto& keys) { return std::any_of(keys.begin(), keys.end(), begins); });
}

Error unknown_key(std::string_view where, std::string_view name) {
  const auto parts = split(name, '.');
  if (parts.size() == 3 && parts[0] == "tag" && !TagName::parse(parts[1])) {
    return Error::format(Code::config, "%s%s: \"%s\" is not a tag name: 1 to 63 of A-Z a-z 0-9 _ -",
                         std::string(where).c_str(), shown(name, 80).c_str(), shown(parts[1], 40).c_str());
  }
  const auto meant = suggestion(name);
  const std::string hint = meant.empty() ? "" : "; did you mean " + meant + "?";
  return Error::format(Code::config, "%sunknown key \"%s\"%s", std::string(where).c_str(), shown(name, 80).c_str(),
                       hint.c_str());
}

Status set_key(Configuration& configuration, std::string_view where, std::string_view name, const Value& value) {
  const auto match = find(name);
  if (match.key == nullptr) return fail(unknown_key(where, name));
  const auto* text = std::get_if<std::string>(&value);
  const auto* list = std::get_if<std::vector<std::string>>(&value);
  const auto& key = *match.key;
  const bool fits = (text != nullptr && key.set_text != nullptr && key.set_text(configuration, match.tag, *text)) ||
                    (list != nullptr && key.set_list != nullptr && key.set_list(configuration, *list));
  if (!fits) return fail(bad_value(where, name, key, value));
  return {};
}

}  // namespace lowtide
