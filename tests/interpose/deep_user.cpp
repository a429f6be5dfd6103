// SPDX-License-Identifier: Apache-2.0
//
// A library that calls deep_answer: the program's, or with RTLD_DEEPBIND that of its own dependency.
extern "C" int deep_answer();
extern "C" __attribute__((visibility("default"))) int call_deep_answer() { return deep_answer(); }
