// SPDX-License-Identifier: Apache-2.0
#include "shim/compat/region_flags.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "allocator/base/env.hpp"
#include "allocator/base/log.hpp"

namespace lowtide::compat {
namespace {

bool word_of(const char* name) {
  const auto text = env(name);
  if (!text) return false;
  for (const char* yes : {"1", "true", "TRUE", "yes", "YES"}) {
    if (*text == yes) return true;
  }
  for (const char* no : {"0", "false", "FALSE", "no", "NO"}) {
    if (*text == no) return false;
  }
  log(LogLevel::warning, "%s=%.40s means nothing, and is taken for 0: 1, true, yes, 0, false or no are known", name,
      std::string(*text).c_str());
  return false;
}

bool is_tag_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         letter == '_' || letter == '-';
}

/// FNV-1a: the same name has the same number in every process.
std::uint64_t number_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

}  // namespace

void RegionFlags::set_name(std::string_view its_name) {
  std::string text(its_name);
  tag = tag_for(its_name);
  name = std::move(text);
}

Label RegionFlags::label() const noexcept {
  Treatment treatment{Action::discard, Place::host};
  if (cpu_backup)
    treatment = {Action::offload, Place::host};
  else if (disk_backup)
    treatment = {Action::offload, Place::disk};
  return {tag, treatment};
}

RegionFlags flags_from_environment() {
  RegionFlags flags;
  flags.interesting = word_of("TMS_INIT_ENABLE");
  flags.cpu_backup = word_of("TMS_INIT_ENABLE_CPU_BACKUP");
  flags.disk_backup = word_of("TMS_INIT_ENABLE_DISK_BACKUP");
  if (const auto backend = env("TMS_INIT_CPU_BACKUP_BACKEND")) {
    flags.mmap = *backend == "mmap";
    if (!flags.mmap && *backend != "pinned") {
      log(LogLevel::warning, "TMS_INIT_CPU_BACKUP_BACKEND=%.40s means nothing, and is taken for pinned",
          std::string(*backend).c_str());
    }
  }
  return flags;
}

bool retains_by_environment() { return word_of("TMS_RETAIN_CPU_BACKUP"); }

TagName tag_for(std::string_view name) {
  if (const auto tag = TagName::parse(name)) return *tag;
  std::string text;
  for (const char letter : name.substr(0, 40)) text += is_tag_letter(letter) ? letter : '_';
  std::array<char, 18> number{};
  std::snprintf(number.data(), number.size(), "-%016" PRIx64, number_of(name));
  return TagName::parse(text + number.data()).value();
}

}  // namespace lowtide::compat
