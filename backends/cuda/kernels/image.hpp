// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide::cuda {

/// page_digest.ptx as text, for cuModuleLoadData.
extern "C" const char lowtide_page_digest_ptx[];

}  // namespace lowtide::cuda
