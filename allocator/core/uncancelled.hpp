// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

namespace lowtide {

/// While it lives, the calling thread of the host is not cancelled (pthread_cancel): the unwinding would be stopped by
/// the first noexcept or catch-all of ours, and end the process. A request meanwhile is heard afterwards.
class Uncancelled {
 public:
  Uncancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace lowtide
