// SPDX-License-Identifier: Apache-2.0
// What allocator/core/backend.hpp promises of contexts, threads and host memory, asked of every backend.
#include <sys/mman.h>

#include <cstring>
#include <future>

#include "tests/contract/contract_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

void for_each_with_contexts(const std::function<void(BackendUnderTest&)>& check) {
  for_each_backend([&](BackendUnderTest& subject) {
    if (subject.has_contexts()) check(subject);
  });
}

}  // namespace

TEST_CASE("a context is attached any number of times, detached and attached again") {
  for_each_with_contexts([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const auto before = subject.held();
    const Memory memory(backend, 1);
    const auto other = subject.make_context();
    for (int i = 0; i < 3; ++i) REQUIRE(backend.attach(other));
    REQUIRE(backend.synchronise());
    backend.detach(other);
    backend.detach(other);
    REQUIRE(backend.attach(other));
    backend.detach(other);
    subject.destroy_context(other);
    write(backend, memory.part({}, {10}), Bytewise(10, 3));
    CHECK(read(backend, memory.part({}, {10})) == Bytewise(10, 3));
    REQUIRE(backend.synchronise());
  });
}

TEST_CASE("a backend works in the context that is left") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    if (!subject.has_contexts()) return;
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    const auto other = subject.make_context();
    REQUIRE(backend.attach(other));
    backend.detach(subject.context());
    subject.renew_context();
    write(backend, memory.part({}, {10}), Bytewise(10, 3));
    CHECK(read(backend, memory.part({}, {10})) == Bytewise(10, 3));
    REQUIRE(backend.attach(subject.context()));
    backend.detach(other);
    subject.destroy_context(other);
    CHECK(read(backend, memory.part({}, {10})) == Bytewise(10, 3));
  });
}

TEST_CASE("a context that died unseen does not make a synchronise fail") {
  for_each_with_contexts([](BackendUnderTest& subject) {
    if (!subject.may_be_filled()) return;  // a real driver reads the handle, whatever lies there by then
    const auto other = subject.make_context();
    REQUIRE(subject.backend().attach(other));
    subject.destroy_context(other);
    REQUIRE(subject.backend().synchronise());
    REQUIRE(subject.backend().memory_info());
  });
}

TEST_CASE("a dead context cannot be attached") {
  for_each_with_contexts([](BackendUnderTest& subject) {
    if (!subject.may_be_filled()) return;  // a real driver reads the handle, whatever lies there by then
    const auto other = subject.make_context();
    subject.destroy_context(other);
    const auto status = subject.backend().attach(other);
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == Code::driver);
    REQUIRE(subject.backend().synchronise());
  });
}

TEST_CASE("synchronise waits for the work of every context") {
  for_each_with_contexts([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 8);
    const auto other = subject.make_context();
    REQUIRE(backend.attach(other));
    const auto half = memory.range.size.value / 2;
    for (int i = 0; i < 4; ++i) {
      const auto value = static_cast<std::uint8_t>(i + 1);
      subject.start_fill(subject.context(), memory.part({}, {half}), value);
      subject.start_fill(other, memory.part({half}, {half}), value);
      REQUIRE(backend.synchronise());
      REQUIRE(read(backend, memory.part({half - 1}, {2})) == Bytewise(2, value));
      REQUIRE(read(backend, memory.part({half * 2 - 1}, {1})) == Bytewise(1, value));
    }
    backend.detach(other);
    subject.destroy_context(other);
  });
}

TEST_CASE("the only context of a device is attached any number of times, and starts over after a reset") {
  for_each_backend([](BackendUnderTest& subject) {
    if (subject.has_contexts()) return;
    Backend& backend = subject.backend();
    for (int i = 0; i < 3; ++i) REQUIRE(backend.attach(subject.context()));
    CHECK_FALSE(backend.attach(ContextId{subject.context().value + 1}));
    backend.detach(subject.context());
    backend.detach(subject.context());
    subject.renew_context();
    REQUIRE(backend.synchronise());
    REQUIRE(backend.finish_copies());
    REQUIRE(backend.attach(subject.context()));
    const Memory memory(backend, 1);
    write(backend, memory.part({}, {10}), Bytewise(10, 3));
    subject.start_fill(subject.context(), memory.part({5}, {memory.range.size.value - 5}), 4);
    REQUIRE(backend.synchronise());
    CHECK(read(backend, memory.part({4}, {2})) == Bytewise{3, 4});
  });
}

TEST_CASE("calls come from a thread without a context and from one with another") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const auto other = subject.make_context();
    const auto work = [&] {
      for (const auto current : {ContextId{}, other}) {
        subject.set_current_context(current);
        {
          const Memory memory(backend, 1);
          write(backend, memory.part({1}, {77}), pattern(77, 1));
          REQUIRE(read(backend, memory.part({1}, {77})) == pattern(77, 1));
          REQUIRE(backend.synchronise());
          REQUIRE(backend.memory_info());
        }
        CHECK(subject.current_context() == current);
      }
      subject.set_current_context({});
    };
    std::async(std::launch::async, work).get();
    subject.destroy_context(other);
  });
}

TEST_CASE("registered host memory is copied from and to, and can be registered again") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    const auto size = memory.range.size;
    void* const host = ::mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(host != MAP_FAILED);
    const auto bytes = pattern(size.value, 2);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(backend.register_host(host, size));
      std::memcpy(host, bytes.data(), size.value);
      REQUIRE(backend.copy_in(memory.range, host));
      REQUIRE(backend.finish_copies());
      std::memset(host, 0, size.value);
      REQUIRE(backend.copy_out(host, memory.range));
      REQUIRE(backend.finish_copies());
      CHECK(std::memcmp(host, bytes.data(), size.value) == 0);
      REQUIRE(backend.unregister_host(host));
    }
    CHECK(backend.unregister_host(host));  // gone already
    ::munmap(host, size.value);
  });
}

TEST_CASE("threads use a backend at the same time") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    std::vector<std::future<void>> threads;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      threads.push_back(std::async(std::launch::async, [&backend, seed] {
        for (int i = 0; i < 8; ++i) {
          const auto granule = backend.capabilities().granularity;
          const AddressRange range{backend.reserve(granule).value(), granule};
          const auto physical = backend.create(range).value();
          bool ok = backend.map(range, physical) && backend.set_access(range, {});
          const auto bytes = pattern(10'000, seed);
          Bytewise copied(bytes.size());
          const AddressRange part{range.start + Bytes{3}, {bytes.size()}};
          ok = ok && backend.copy_in(part, bytes.data()) && backend.copy_out(copied.data(), part);
          ok = ok && backend.finish_copies() && copied == bytes;
          ok = backend.unmap(range) && backend.release(physical) && backend.release_reservation(range) && ok;
          if (!ok) throw std::runtime_error("a thread's bytes or calls were wrong");
        }
      }));
    }
    for (auto& thread : threads) thread.get();
  });
}
