// SPDX-License-Identifier: Apache-2.0
//
// A program that is not linked with the driver and reaches for it through the dynamic loader.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "tests/interpose/check.hpp"
#include "tests/interpose/cuda_abi.hpp"
#include "tests/interpose/fake_state.hpp"

using namespace lowtide::test;

// What libdeep_user.so calls; its own dependency has another one.
extern "C" __attribute__((visibility("default"))) int deep_answer() { return 1; }

namespace {

template <typename Function>
Function named(void* handle, const char* name) {
  return reinterpret_cast<Function>(::dlsym(handle, name));
}

void* driver() {
  void* handle = ::dlopen("libcuda.so.1", RTLD_NOW);
  check(handle != nullptr, "the fake driver loads");
  return handle;
}

// The library an address belongs to is Lowtide's.
bool is_ours(void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "liblowtide_preload.so") != nullptr;
}

void check_unknown(void* handle, const char* name, int line = __builtin_LINE()) {
  ::dlerror();
  check(::dlsym(handle, name) == nullptr, name, line);
  check(::dlerror() != nullptr, "dlerror says why", line);
}

void absent_driver_has_no_names() {
  check_unknown(RTLD_DEFAULT, "cuInit");
  check_unknown(RTLD_DEFAULT, "cuMemCreate");
  check_unknown(::dlopen(nullptr, RTLD_NOW), "cuInit");
  driver();
  check(is_ours(::dlsym(RTLD_DEFAULT, "cuInit")), "found once the driver is there");
  check_unknown(RTLD_DEFAULT, "hipMalloc");  // the other vendor's is not
  ::dlopen("libamdhip64.so.6", RTLD_NOW);
  check(is_ours(::dlsym(RTLD_DEFAULT, "hipMalloc")), "until its library is there as well");
}

void every_door_gives_one_address() {
  void* handle = driver();
  for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "cuMemCreate", "cuGetProcAddress_v2"}) {
    void* address = ::dlsym(handle, name);
    check(is_ours(address), name);
    check(::dlerror() == nullptr, "a look-up that succeeds leaves no message");
    check(::dlsym(RTLD_DEFAULT, name) == address, "RTLD_DEFAULT");
    check(::dlsym(::dlopen(nullptr, RTLD_NOW), name) == address, "dlopen(NULL)");
    check(::dlvsym(handle, name, "ANY_1.0") == nullptr, "this driver has no versions for dlvsym to find");
    ::dlerror();
  }
}

void other_names_are_left_alone() {
  void* handle = driver();
  void* count = ::dlsym(handle, "cuDeviceGetCount");
  check(count != nullptr && !is_ours(count), "a name that is not in the list is the driver's");
  check_unknown(handle, "cuNoSuchFunction");
  check_unknown(handle, "cuMemAllocManaged");
  check_unknown(RTLD_DEFAULT, "cuMemAllocManaged");
  check_unknown(::dlopen(nullptr, RTLD_NOW), "cuMemAllocManaged");
  check_unknown(RTLD_NEXT, "cuNoSuchFunction");
  void* libc = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  check(::dlvsym(libc, "puts", "GLIBC_0.0") == nullptr, "dlvsym is forwarded with its version");
  void* puts = ::dlvsym(libc, "puts", PUTS_VERSION);
  check(puts != nullptr && puts == ::dlsym(libc, "puts"), "dlvsym finds what libc has");
}

using ProcAddress = decltype(&::cuGetProcAddress_v2);

void* ask(ProcAddress resolver, const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  resolver(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  return function;
}

void proc_address_knows_itself() {
  void* handle = driver();
  const auto resolver = named<ProcAddress>(handle, "cuGetProcAddress_v2");
  check(ask(resolver, "cuGetProcAddress", 12000) == reinterpret_cast<void*>(resolver), "version 12 is _v2 of ours");
  check(ask(resolver, "cuGetProcAddress", 11030) == ::dlsym(handle, "cuGetProcAddress"), "version 11.3 is v1 of ours");
  check(ask(resolver, "cuMemAlloc", 12000) == ::dlsym(handle, "cuMemAlloc_v2"), "cuMemAlloc is cuMemAlloc_v2");
  check(ask(resolver, "cuDeviceGetCount", 12000) == ::dlsym(handle, "cuDeviceGetCount"), "others unchanged");
  check(ask(resolver, "", 0) == nullptr, "the empty name cudart begins with");
  check(ask(resolver, "cuNoSuchFunction", 12000) == nullptr, "an unknown name");
  void* function = nullptr;
  check(resolver("cuInit", &function, 12000, 0, nullptr) == CUDA_SUCCESS, "no status pointer");
  const auto first = named<decltype(&::cuGetProcAddress)>(handle, "cuGetProcAddress");
  check(first("cuInit", &function, 11030, 0) == CUDA_SUCCESS && is_ours(function), "the first version substitutes");
}

// The fake driver answers another address for cuMemFreeAsync through cuGetProcAddress than through dlsym.
void second_address_is_ours_too() {
  void* handle = driver();
  const auto resolver = named<ProcAddress>(handle, "cuGetProcAddress_v2");
  check(ask(resolver, "cuMemFreeAsync", 12000) == ::dlsym(handle, "cuMemFreeAsync"), "both addresses give our export");
}

void runpath_of_the_caller_holds() {
  void* user = ::dlopen("librunpath_user.so", RTLD_NOW);
  check(user != nullptr, "librunpath_user.so loads");
  const auto open = named<int (*)()>(user, "open_by_runpath");
  check(open != nullptr && open() == 42, "it finds librunpath_deep.so through its own RUNPATH");
}

int deep() {
  void* user = ::dlopen("libdeep_user.so", RTLD_NOW | RTLD_DEEPBIND);
  check(user != nullptr, "libdeep_user.so loads");
  const auto call = named<int (*)()>(user, "call_deep_answer");
  return call != nullptr ? call() : 0;
}

void deepbind_is_masked() { check(deep() == 1, "the program's definition comes first"); }
void deepbind_is_kept() { check(deep() == 2, "the library's own dependency comes first"); }

// The second preload wraps puts by RTLD_NEXT and counts.
void next_is_the_callers_next() {
  const auto count = named<int (*)()>(RTLD_DEFAULT, "second_preload_calls");
  check(count != nullptr, "the second preload is there");
  std::puts("through both");
  check(count != nullptr && count() == 1, "its wrapper ran once and reached libc");
  const auto next = named<void* (*)(const char*)>(RTLD_DEFAULT, "second_preload_next");
  void* handle = driver();
  void* found = next("cuInit");
  void* behind = std::getenv("SECOND_IS_FIRST") != nullptr ? ::dlsym(handle, "cuInit") : nullptr;
  check(found == behind, "what it finds next depends on its place alone");
}

void looking_up_starts_nothing() {
  every_door_gives_one_address();
  check(!FakeState().loaded(), "liblowtide.so stays out until a function is called");
}

constexpr Scenario scenarios[] = {
    {"absent_driver_has_no_names", absent_driver_has_no_names},
    {"every_door_gives_one_address", every_door_gives_one_address},
    {"other_names_are_left_alone", other_names_are_left_alone},
    {"proc_address_knows_itself", proc_address_knows_itself},
    {"second_address_is_ours_too", second_address_is_ours_too},
    {"runpath_of_the_caller_holds", runpath_of_the_caller_holds},
    {"deepbind_is_masked", deepbind_is_masked},
    {"deepbind_is_kept", deepbind_is_kept},
    {"next_is_the_callers_next", next_is_the_callers_next},
    {"looking_up_starts_nothing", looking_up_starts_nothing},
};

}  // namespace

int main(int argc, char** argv) { return run_scenario(scenarios, argc, argv); }
