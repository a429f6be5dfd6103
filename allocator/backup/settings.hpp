// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// The settings of the backups. Parsed by policy/.
struct BackupSettings {
  /// What becomes of host memory that held a backup once its tag is resident again. `automatic`: kept for the next
  /// pause, since getting pinned memory costs more than filling it; `none`: given back at once.
  enum class Retain { automatic, none };
  Retain retain = Retain::automatic;
  /// Whether a backup's digests are checked before its bytes are used.
  bool verify = false;
  /// The most that all processes of this node together hold for backups; nothing: as much as there is.
  std::optional<Bytes> budget;
};

/// Where backups are kept whose tags say `store = disk`. Parsed by policy/.
struct DiskSettings {
  /// An absolute path; empty: where temporary files are.
  std::string path;
};

}  // namespace lowtide
