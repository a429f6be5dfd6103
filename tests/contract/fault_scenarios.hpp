// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {

/// The blocks of a program whose transitions are made to fail.
struct FaultScenario {
  const char* name;
  std::size_t devices;
  BackupSettings backup;
  void (*build)(World& world);
};

inline constexpr BackupSettings retain_none{BackupSettings::Retain::none};

inline const FaultScenario fault_scenarios[] = {
    {"large and small blocks with a backup",
     1,
     {},
     [](World& world) {
       world.add("weights", 3_MiB);
       world.add("weights", Bytes{1000});
       world.add("weights", 300_KiB);
     }},
    {"host memory given back at once", 1, retain_none,
     [](World& world) {
       world.add("weights", 2_MiB);
       world.add("weights", Bytes{1000});
     }},
    {"content without a backup",
     1,
     {},
     [](World& world) {
       world.set_action("kv_cache", Action::discard);
       world.add("kv_cache", 2_MiB);
       world.add("kv_cache", 5_KiB);
     }},
    {"content that stays readable in host memory, beside content that is copied out",
     1,
     {},
     [](World& world) {
       world.set_paused_access("lora", PausedAccess::host);
       world.add("lora", 3_MiB);
       world.add("lora", Bytes{1000});
       world.add("weights", 2_MiB);
     }},
    {"readable content, host memory given back at once", 1, retain_none,
     [](World& world) {
       world.set_paused_access("lora", PausedAccess::host);
       world.add("lora", 2_MiB);
     }},
    {"two devices, tags with and without a backup, one that stays",
     2,
     {},
     [](World& world) {
       world.set_action("kv_cache", Action::discard);
       world.set_action("scratch", Action::keep);
       world.add("weights", 2_MiB, 0);
       world.add("weights", 7_KiB, 1);
       world.add("kv_cache", 2_MiB, 1);
       world.add("scratch", 9_KiB, 0);
     }},
    {"blocks on disk",
     1,
     {},
     [](World& world) {
       world.set_store("weights", Place::disk);
       world.add("weights", 3_MiB);
       world.add("weights", Bytes{1000});
     }},
    {"two devices, two stores, digests checked, nothing retained",
     2,
     {.retain = BackupSettings::Retain::none, .verify = true},
     [](World& world) {
       world.set_store("lora", Place::disk);
       world.add("weights", 2_MiB, 0);
       world.add("lora", 2_MiB, 0);
       world.add("lora", 7_KiB, 1);
       world.add("weights", Bytes{1000}, 1);
     }},
};

}  // namespace lowtide::test
