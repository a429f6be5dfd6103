// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide {

/// The settings of the backups. Parsed by policy/.
struct BackupSettings {
  /// What becomes of host memory that held a backup once its tag is resident again. `automatic`: kept for the next
  /// pause, since getting pinned memory costs more than filling it; `none`: given back at once.
  enum class Retain { automatic, none };
  Retain retain = Retain::automatic;
};

}  // namespace lowtide
