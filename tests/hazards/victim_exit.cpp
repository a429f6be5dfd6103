// SPDX-License-Identifier: Apache-2.0
// Programs that end while their memory is parked, or that are held.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "tests/hazards/control.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/victim.hpp"

namespace hazards {
namespace {

int bad_frees = 0;

/// Freed after main, by destructors and handlers that are older or younger than the first GPU call.
struct Leaked {
  std::vector<CUdeviceptr> managed;
  std::vector<CUdeviceptr> plain;

  void free() {
    for (const auto address : managed) bad_frees += cuMemFree(address) != CUDA_SUCCESS;
    // The driver may be gone by now, and then its memory is.
    for (const auto address : plain) (void)cuMemFree(address);
    managed.clear();
    plain.clear();
  }
};
struct FreesAtTheEnd : Leaked {
  ~FreesAtTheEnd() { free(); }
};
Leaked freed_by_old_handler;
FreesAtTheEnd older_object;

CUdeviceptr leak(const char* tag, std::size_t size) { return Block(tag, size).forget(); }

void report_bad_frees() {
  if (bad_frees > 0) _exit(3);
}

int exit_paused(const Arguments&) {
  std::atexit(report_bad_frees);  // runs last
  std::atexit([] { freed_by_old_handler.free(); });
  use_device();
  static FreesAtTheEnd younger_object;
  for (Leaked* leaked : std::initializer_list<Leaked*>{&freed_by_old_handler, &older_object, &younger_object}) {
    leaked->managed = {leak("weights", 2 * mib), leak("weights", 3000), leak("lora", 2 * mib)};
    leaked->plain = {leak(nullptr, 2 * mib)};
  }
  pause("weights");
  say("paused");
  return 0;
}

std::thread at_the_gate;
std::atomic<bool> has_ended{false};

/// The main thread returns while another waits at the gate, and a handler of the program waits for that one.
int exit_at_gate(const Arguments&) {
  std::atexit([] {
    has_ended = true;
    at_the_gate.join();
  });
  const auto context = use_device();
  static Block block("weights", 2 * mib);
  must(says(ask(::getpid(), "pause tag=weights"), "\"ok\":true"), "held");
  static std::vector<std::uint8_t> bytes(2 * mib);
  at_the_gate = std::thread([context] {
    cuCtxSetCurrent(context);
    say(std::to_string(::gettid()));
    while (!has_ended) cuMemcpyDtoH(bytes.data(), block.address(), bytes.size());
  });
  hear();
  block.forget();
  return 0;
}

const Client* connected = nullptr;
std::thread works_until_the_end;

/// A client that connected before the end asks for a pause after it began, while a thread still works that a handler of
/// the program waits for.
int exit_then_pause(const Arguments&) {
  std::atexit([] {
    connected->send("pause tag=weights");
    say(connected->answer());
    has_ended = true;
    works_until_the_end.join();
  });
  const auto context = use_device();
  connected = new Client(::getpid());
  std::promise<void> works;
  works_until_the_end = std::thread([context, &works, address = leak("weights", 2 * mib)] {
    cuCtxSetCurrent(context);
    std::vector<std::uint8_t> bytes(2 * mib);
    must(cuMemcpyDtoH(bytes.data(), address, bytes.size()));
    works.set_value();
    while (!has_ended) (void)cuMemcpyDtoH(bytes.data(), address, bytes.size());  // the driver may be gone by now
  });
  works.get_future().wait();
  return 0;
}

/// Exits while the pause that another asked for still runs.
int exit_during_pause(const Arguments&) {
  use_device();
  const Kernels kernels;
  const Stream stream;
  static std::uint32_t never = 0;
  static Block block("weights", 2 * mib);
  block.forget();
  kernels.spin_until(never, stream);
  lowtide_sim_fail(nullptr);
  static std::optional<Client> client(std::in_place, ::getpid());
  client->send("pause tag=weights hold=0");
  while (lowtide_sim_calls("cuCtxSynchronize") == 0) std::this_thread::yield();
  std::exit(0);
}

int hold_me(const Arguments&) {
  use_device();
  const auto blocks = make_blocks("weights", 2, 4 * mib);
  const Block other("lora", 4 * mib);
  say("ready");
  hear();
  return 0;
}

int print_free_bytes(const Arguments&) {
  use_device();
  std::size_t free = 0;
  std::size_t total = 0;
  must(cuMemGetInfo(&free, &total));
  say(std::to_string(free));
  return 0;
}

int client(const Arguments& arguments) {
  say(ask(std::stoi(arguments.at(0)), arguments.at(1)));
  return 0;
}

}  // namespace

std::vector<Role> exit_roles() {
  return {{"exit-paused", exit_paused},
          {"exit-at-gate", exit_at_gate},
          {"exit-then-pause", exit_then_pause},
          {"exit-during-pause", exit_during_pause},
          {"hold-me", hold_me},
          {"free-bytes", print_free_bytes},
          {"client", client}};
}

}  // namespace hazards
