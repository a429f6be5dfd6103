// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/world.hpp"

namespace lowtide::test {

const std::vector<const BackendKind*> backend_kinds{&vmm_kind, &recreate_kind};

}  // namespace lowtide::test
