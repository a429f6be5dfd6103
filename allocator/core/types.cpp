// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/types.hpp"

#include <algorithm>

namespace lowtide {
namespace {

bool is_tag_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

}  // namespace

std::optional<TagName> TagName::parse(std::string_view text) noexcept {
  if (text.empty() || text.size() > most) return std::nullopt;
  if (!std::all_of(text.begin(), text.end(), is_tag_character)) return std::nullopt;
  TagName tag;
  std::copy(text.begin(), text.end(), tag.text_.begin());
  return tag;
}

const char* to_text(Action action) noexcept {
  switch (action) {
    case Action::keep: return "keep";
    case Action::offload: return "offload";
    case Action::discard: return "discard";
  }
  return "unknown";
}

const char* to_text(Fill fill) noexcept {
  switch (fill) {
    case Fill::none: return "none";
    case Fill::zero: return "zero";
    case Fill::poison: return "poison";
  }
  return "unknown";
}

const char* to_text(Place place) noexcept { return place == Place::disk ? "disk" : "host"; }

const char* to_text(PausedAccess access) noexcept { return access == PausedAccess::host ? "host" : "fault"; }

const char* to_text(Content content) noexcept { return content == Content::scratch ? "scratch" : "persistent"; }

const char* to_text(Freshness freshness) noexcept {
  switch (freshness) {
    case Freshness::valid: return "valid";
    case Freshness::stale: return "stale";
    case Freshness::syncing: return "syncing";
  }
  return "unknown";
}

const char* to_text(Coverage coverage) noexcept {
  switch (coverage) {
    case Coverage::off: return "off";
    case Coverage::warn: return "warn";
    case Coverage::enforce: return "enforce";
    case Coverage::learn: return "learn";
  }
  return "unknown";
}

}  // namespace lowtide
