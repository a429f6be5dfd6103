// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// Asks the kernel to put the pages of `memory`, which has none yet, on the NUMA node, as long as the node has room.
/// Negative: on any. False if the kernel forbids it, as it does in most containers.
bool prefer_node(void* memory, Bytes size, int node) noexcept;

/// Where that is forbidden: memory comes from the node of the processor that touches it first, so the calling thread
/// moves to those of the node that it may use, for good. It stays where it is if there are none. `root` is "" but for
/// tests.
void run_on_node(int node, const std::string& root) noexcept;

}  // namespace lowtide
