// SPDX-License-Identifier: Apache-2.0
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif

/// glibc gives back the thread-local memory of an ended thread when the next one takes over its stack, in an order that
/// the sanitizer does not see: a destructor that ran before it in the ended thread looks like a race.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:_dl_deallocate_tls\n";
}
