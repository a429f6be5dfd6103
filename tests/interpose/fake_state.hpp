// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace lowtide::test {

/// What the stand-in for liblowtide.so answers for: one block, and allocations of exactly this size.
constexpr std::uint64_t block_address = 0x700000000000;
constexpr std::uint64_t block_size = 0x5000;
constexpr std::uint64_t block_context = 0x1234;
constexpr int block_device = 3;
constexpr std::uint64_t managed_size = 4096;
constexpr std::uint64_t managed_address = 0x710000000000;
/// What it knows to be given, with the size; and what it does not.
constexpr std::uint64_t released_size = 64;
constexpr std::uint64_t unknown_to_state = 79;

/// What a test may ask of it and set.
struct FakeState {
  bool loaded() const { return library != nullptr; }
  /// How often the named function of the door table was called.
  int calls(const char* entry) const { return function<int(const char*)>("fake_state_calls")(entry); }
  /// The last pointer or address that function was called with.
  std::uint64_t last(const char* entry) const { return function<std::uint64_t(const char*)>("fake_state_last")(entry); }
  void set_resident(int resident) const { function<void(int)>("fake_state_set_resident")(resident); }
  void set_recording(int recording) const { function<void(int)>("fake_state_set_recording")(recording); }
  void set_gate(int answer) const { function<void(int)>("fake_state_set_gate")(answer); }

  template <typename Signature>
  Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(::dlsym(library, name));
  }
  void* library = ::dlopen("liblowtide.so", RTLD_NOW | RTLD_NOLOAD);
};

}  // namespace lowtide::test
