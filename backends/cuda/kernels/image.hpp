// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide::cuda {

// The .ptx files beside this one as text, for cuModuleLoadData.
extern "C" const char lowtide_page_digest_ptx[];
extern "C" const char lowtide_blank_ptx[];

}  // namespace lowtide::cuda
