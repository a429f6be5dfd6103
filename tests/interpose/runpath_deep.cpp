// SPDX-License-Identifier: Apache-2.0
extern "C" __attribute__((visibility("default"))) int runpath_answer() { return 42; }
