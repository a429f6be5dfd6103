// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/content_keys.hpp"

#include <array>

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 2> content_words{"persistent", "scratch"};
constexpr std::array<std::string_view, 2> initial_words{"valid", "stale"};
constexpr std::array<std::string_view, 4> coverage_words{"off", "warn", "enforce", "learn"};

bool set_content(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto content : {Content::persistent, Content::scratch}) {
    if (value != to_text(content)) continue;
    configuration.core.tags[tag].content = content;
    return true;
  }
  return false;
}

bool set_initial(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto freshness : {Freshness::valid, Freshness::stale}) {
    if (value != to_text(freshness)) continue;
    configuration.core.tags[tag].initial = freshness;
    return true;
  }
  return false;
}

bool set_coverage(Configuration& configuration, const TagName& tag, std::string_view value) {
  for (const auto coverage : {Coverage::off, Coverage::warn, Coverage::enforce, Coverage::learn}) {
    if (value != to_text(coverage)) continue;
    configuration.core.tags[tag].coverage = coverage;
    return true;
  }
  return false;
}

constexpr std::array table{
    Key{"tag.NAME.content", "persistent or scratch", "`scratch` for kv_cache, `persistent` for any other tag",
        "What a pause that drops the tag's bytes takes: the only copy, so that blocks come back stale until an update "
        "wrote them; or data that its owner makes as it goes.",
        content_words, set_content, nullptr},
    Key{"tag.NAME.initial", "valid or stale", "`valid`",
        "What a new block counts as: content, or memory that an update has yet to write, as weights are that were "
        "loaded "
        "as dummies.",
        initial_words, set_initial, nullptr},
    Key{"tag.NAME.coverage", "off, warn, enforce or learn", "`learn` in mode enforce, else `off`",
        "Whether blocks that come back stale are filled with a pattern, and what the end of an update does with what "
        "still holds it: a warning, a refusal, or it is put back as it was before the pause.",
        coverage_words, set_coverage, nullptr},
};

}  // namespace

std::span<const Key> content_keys() noexcept { return table; }

}  // namespace lowtide
