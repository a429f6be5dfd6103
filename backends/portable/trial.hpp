// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "allocator/core/backend.hpp"

namespace lowtide::portable {

/// How much a trial asks for. Large enough to be told from what neighbours do, and got within milliseconds.
constexpr Bytes usual_trial = 26_MiB;

enum class Verdict {
  works,               ///< a block can be parked and resumed, and its memory comes free meanwhile
  fails,               ///< a call fails, or memory does not hold what is written to it
  frees_nothing,       ///< all calls succeed, and free memory does not rise
  frees_with_address,  ///< free memory rises only when the reservation goes too
  full,                ///< not a granule was free: nothing could be tried
  undecided,           ///< every call succeeds, but others changed the free memory all the while
};

struct TrialReport {
  Verdict verdict = Verdict::undecided;
  std::optional<Error> why;  ///< unless it works
  Bytes size;                ///< of the last attempt
  int attempts = 0;
  /// Whether memory was had again at the address that it had; nothing if it never came to that.
  std::optional<bool> address_came_back;
  int descriptors_per_handle = 0;  ///< file descriptors of this process that one physical handle takes
  int descriptors_left = 0;        ///< that stay open when it is released
  std::chrono::duration<double> time{};
};

/// Finds out what a backend can do, by the life of one block: reserve, create, map, write by the device, read back,
/// take away, look whether free memory rises, and the same once more at the same address. Attributes and versions are
/// not asked: there are drivers that have every call and free nothing.
///
/// Neighbours allocate and free meanwhile, and may be trials of the same kind. So a rise counts only if it is that of
/// the memory which went; sizes differ from attempt to attempt; and three attempts more must say one thing than the
/// other. On a nearly full device one granule is enough. `usual` is how much to ask for: a backend whose handles can be
/// as large must stand it. Needs an attached context; takes milliseconds, and with neighbours a few tenths of a second.
TrialReport try_backend(Backend& backend, Bytes usual = usual_trial);

const char* to_text(Verdict verdict) noexcept;

}  // namespace lowtide::portable
