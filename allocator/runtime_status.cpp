// SPDX-License-Identifier: Apache-2.0
// The "status" object of docs/control-protocol.md.
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "allocator/base/json_writer.hpp"
#include "allocator/control/socket_directory.hpp"
#include "allocator/runtime.hpp"

namespace lowtide {
namespace {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c == '\0') c = ' ';
  }
  constexpr std::size_t most = 1000;
  if (text.size() > most) text.resize(most);
  return text;
}

const char* state_of(const RegionInfo& region) {
  if (region.parked.value == 0) return "resident";
  return region.resident.value == 0 ? "parked" : "mixed";
}

void write_word(JsonWriter& json, const char* name, const std::string& word) {
  json.key(name);
  if (word.empty())
    json.null();
  else
    json.value(word);
}

void write_caller(JsonWriter& json, const Caller& caller) {
  write_word(json, "python", caller.python);
  write_word(json, "function", caller.function);
  write_word(json, "library", caller.library);
}

void write_content(JsonWriter& json, const RegionInfo& region, const TagUpdates& updates) {
  json.field("freshness", to_text(region.freshness)).field("bytes_stale", region.stale);
  json.field("bytes_residue", region.residue).field("version", updates.version);
  json.key("updating_to");
  if (updates.pending)
    json.value(*updates.pending);
  else
    json.null();
  json.key("updates").begin_object();
  json.field("committed", updates.committed).field("aborted", updates.aborted);
  json.field("refused", updates.refused).field("repeated", updates.repeated).end_object();
}

}  // namespace

std::string Runtime::status_json() {
  const auto self = identify_self();
  const auto regions = blocks_.regions();
  JsonWriter json;
  json.begin_object();
  json.field("pid", self ? self->pid : ::getpid());
  json.field("command", command_line());
  json.field("version", LOWTIDE_VERSION);
  json.field("simulated", simulated_);
  json.key("default_tag");
  if (default_tag_)
    json.value(default_tag_->view());
  else
    json.null();
  json.field("gate", gate_.closed() ? "closed" : "open");
  json.key("held_tags").begin_array();
  std::set<TagName> held;
  for (const auto& region : regions) {
    if (region.parked.value > 0 && is_held(region.label.tag)) held.insert(region.label.tag);
  }
  for (const auto& tag : held) json.value(tag.view());
  json.end_array();
  json.field("captures", captures_.active());
  json.key("transition");
  if (const auto running = transitions_.running()) {
    json.begin_object().field("step", running->step);
    json.field("done", running->progress.done).field("total", running->progress.total).end_object();
  } else {
    json.null();
  }
  write_devices(json);
  write_tags(json, regions);
  write_origins(json);
  write_stores(json);
  write_policy(json);
  return json.end_object().take();
}

void Runtime::write_policy(JsonWriter& json) {
  json.key("policy").raw(policy_.status_json());
  json.key("unmanaged_callers").begin_array();
  for (const auto& caller : unmanaged_callers_) json.value(caller);
  json.end_array();
}

void Runtime::write_origins(JsonWriter& json) {
  const auto origins = origins_.all();
  json.key("origins").begin_array();
  for (const auto& [id, share] : blocks_.shares()) {
    const auto found = origins.find(id);
    if (found == origins.end()) continue;
    const Origin& origin = found->second;
    json.begin_object().field("tag", origin.tag.view()).field("from", to_text(origin.source));
    json.key("rule");
    if (origin.rule > 0)
      json.value(origin.rule);
    else
      json.null();
    json.field("blocks", share.blocks).field("bytes", share.bytes);
    write_caller(json, origin.caller);
    json.end_object();
  }
  json.end_array();
  json.key("untagged").begin_array();
  for (const auto& each : origins_.untagged()) {
    json.begin_object().field("allocations", each.allocations).field("bytes_asked", each.asked);
    write_caller(json, each.caller);
    json.end_object();
  }
  json.end_array();
  json.field("python_hidden", origins_.hidden_python());
}

void Runtime::write_stores(JsonWriter& json) {
  json.key("host").begin_object();
  json.field("bytes_backup", store_.backup_bytes()).field("bytes_retained", stores_.retained_bytes()).end_object();
  json.key("disk")
      .begin_object()
      .field("bytes_backup", disk_.backup_bytes())
      .field("path", disk_.folder())
      .end_object();
}

void Runtime::write_devices(JsonWriter& json) {
  json.key("devices").begin_array();
  for (Backend* backend : backends()) {
    const auto info = backend->memory_info().value_or(MemoryInfo{});
    json.begin_object();
    json.field("device", index_of(backend->device())).field("name", backend->device_name());
    json.field("key", key_of(backend->device()));
    json.field("backend", backend->name()).field("reason", backend->reason());
    json.field("granularity", backend->capabilities().granularity);
    json.field("free", info.free).field("total", info.total);
    json.end_object();
  }
  json.end_array();
}

void Runtime::write_tags(JsonWriter& json, const std::vector<RegionInfo>& regions) {
  const CoreSettings current = settings();
  json.key("tags").begin_array();
  for (const auto& region : regions) {
    const TagSettings tag = current.of(region.label);
    json.begin_object();
    json.field("tag", region.label.tag.view()).field("device", index_of(region.device));
    json.field("action", to_text(tag.pause)).field("state", state_of(region)).field("blocks", region.blocks);
    json.field("bytes_resident", region.resident).field("bytes_parked", region.parked);
    json.field("bytes_backup", region.backup).field("bytes_slack", region.slack);
    json.key("shared_by");
    if (region.shared_by != nullptr)
      json.value(region.shared_by);
    else
      json.null();
    write_content(json, region, blocks_.updates(region.label.tag).value_or(TagUpdates{}));
    json.end_object();
  }
  json.end_array();
}

}  // namespace lowtide
