// SPDX-License-Identifier: Apache-2.0
#include "tests/interpose/hip_declarations.hpp"

#include <algorithm>
#include <cstdio>

int main() {
  const auto ours = lowtide::test::our_hip();
  const auto theirs = lowtide::test::vendors_hip();
  const auto [mine, other] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  if (mine == ours.end() && other == theirs.end()) return 0;
  std::printf("entry %td of the list is %zu in our declarations and %zu in the vendor's\n", mine - ours.begin(), *mine,
              *other);
  return 1;
}
