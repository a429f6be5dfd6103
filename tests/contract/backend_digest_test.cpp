// SPDX-License-Identifier: Apache-2.0
// What allocator/core/backend.hpp promises of digests, asked of every backend: the device says what the host says.
#include <future>
#include <random>

#include "tests/contract/contract_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

Bytewise random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytewise bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

/// Memory whose bytes are known.
struct KnownMemory {
  KnownMemory(Backend& backend, std::uint64_t granules, std::uint64_t seed) : memory(backend, granules) {
    bytes = random_bytes(memory.range.size.value, seed);
    write(backend, memory.range, bytes);
  }
  PageDigest expected(AddressRange page) const {
    return digest_of(bytes.data() + (page.start - memory.range.start).value, page.size.value,
                     memory.backend.digest_key());
  }
  Memory memory;
  Bytewise bytes;
};

std::vector<AddressRange> random_pages(const AddressRange& range, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<AddressRange> pages;
  while (pages.size() < count) {
    const Bytes offset{random() % range.size.value};
    const auto most = std::min(range.size.value - offset.value, digest_page.value);
    pages.push_back({range.start + offset, {random() % (most + 1)}});
  }
  return pages;
}

Result<std::vector<PageDigest>> digests_of(Backend& backend, const std::vector<AddressRange>& pages) {
  std::vector<PageDigest> digests(pages.size());
  if (auto status = backend.digest(pages, digests); !status) return fail(status.error());
  return digests;
}

PageDigest digest_of_range(Backend& backend, AddressRange page) {
  const auto digests = digests_of(backend, {page});
  REQUIRE(digests);
  return digests->front();
}

void for_each_with_digests(const std::function<void(BackendUnderTest&)>& check) {
  for_each_backend([&](BackendUnderTest& subject) {
    if (subject.has_digests()) check(subject);
  });
}

}  // namespace

TEST_CASE("the device's digests are those of the host, whatever the pages' sizes and addresses") {
  for_each_with_digests([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const KnownMemory known(backend, 4, 1);
    const auto& range = known.memory.range;
    auto pages = random_pages(range, 40, 2);
    for (Bytes at; at < range.size; at += digest_page) pages.push_back(known.memory.part(at, digest_page));
    for (const std::uint64_t offset : {0u, 1u, 8u, 16u, 4096u}) {
      for (const std::uint64_t size : {0u, 1u, 15u, 16u, 4095u, 4096u, 16'384u, 16'385u, 65'536u, (1u << 21) - 16}) {
        pages.push_back(known.memory.part({offset}, {size}));
      }
    }
    const auto digests = digests_of(backend, pages);
    REQUIRE(digests);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      INFO("page at +" << (pages[i].start - range.start).value << " of " << pages[i].size.value << " bytes");
      REQUIRE((*digests)[i] == known.expected(pages[i]));
    }
  });
}

TEST_CASE("no page is nothing to do, and there may be more than one launch takes") {
  for_each_with_digests([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const KnownMemory known(backend, 1, 3);
    REQUIRE(digests_of(backend, {}));
    std::vector<AddressRange> pages;
    for (std::uint64_t i = 0; i < (1u << 14) + 3; ++i) pages.push_back(known.memory.part({i}, {i % 7}));
    const auto digests = digests_of(backend, pages);
    REQUIRE(digests);
    for (const std::size_t i : {0u, 1u, 16'383u, 16'384u, 16'386u}) {
      CHECK((*digests)[i] == known.expected(pages[i]));
    }
  });
}

TEST_CASE("a digest sees the copies and fills that were waited for") {
  for_each_with_digests([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 8);
    const auto page = memory.part(memory.range.size - digest_page, digest_page);
    const auto& key = backend.digest_key();
    for (std::uint8_t value = 1; value < 4; ++value) {
      REQUIRE(backend.fill(memory.range, value));
      REQUIRE(backend.finish_copies());
      CHECK(digest_of_range(backend, page) ==
            digest_of(Bytewise(digest_page.value, value).data(), digest_page.value, key));
      const auto bytes = random_bytes(digest_page.value, value);
      REQUIRE(backend.copy_in(page, bytes.data()));
      REQUIRE(backend.finish_copies());
      CHECK(digest_of_range(backend, page) == digest_of(bytes.data(), bytes.size(), key));
    }
  });
}

TEST_CASE("a digest sees another context's work after a synchronise") {
  for_each_with_digests([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    const auto other = subject.make_context();
    REQUIRE(backend.attach(other));
    subject.start_fill(other, memory.range, 77);
    REQUIRE(backend.synchronise());
    const auto page = memory.part({}, {5000});
    CHECK(digest_of_range(backend, page) == digest_of(Bytewise(5000, 77).data(), 5000, backend.digest_key()));
    backend.detach(other);
    subject.destroy_context(other);
  });
}

TEST_CASE("a page that is too large is refused") {
  for_each_with_digests([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 2);
    const auto digests = digests_of(backend, {memory.part({}, digest_page + Bytes{1})});
    REQUIRE_FALSE(digests);
    CHECK(digests.error().code() == Code::invalid);
  });
}

TEST_CASE("digests are made in the context that is left") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    if (!subject.has_digests()) return;
    Backend& backend = subject.backend();
    const KnownMemory known(backend, 1, 5);
    const auto page = known.memory.part({3}, {10'000});
    const auto other = subject.make_context();
    REQUIRE(backend.attach(other));
    backend.detach(subject.context());
    subject.renew_context();
    CHECK(digest_of_range(backend, page) == known.expected(page));
    REQUIRE(backend.attach(subject.context()));
    backend.detach(other);
    subject.destroy_context(other);
    CHECK(digest_of_range(backend, page) == known.expected(page));
  });
}

TEST_CASE("a context that ended and came again unseen is an error, and digests come back with its next attach") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    if (!subject.has_digests()) return;
    if (!subject.may_be_filled()) return;  // what a driver does with handles of a dead context is its own affair
    Backend& backend = subject.backend();
    const KnownMemory known(backend, 1, 8);
    const auto page = known.memory.part({}, {10'000});
    subject.renew_context();
    CHECK_FALSE(digests_of(backend, {page}));
    backend.detach(subject.context());
    const auto without = digests_of(backend, {page});
    REQUIRE_FALSE(without);
    CHECK(without.error().code() == Code::unsupported);
    REQUIRE(backend.attach(subject.context()));
    CHECK(digest_of_range(backend, page) == known.expected(page));
  });
}

TEST_CASE("a full device still makes digests") {
  for_each_with_digests([](BackendUnderTest& subject) {
    if (!subject.may_be_filled()) return;
    Backend& backend = subject.backend();
    const KnownMemory known(backend, 1, 6);
    const auto rest = take(backend, backend.memory_info()->free);
    REQUIRE(rest);
    REQUIRE(backend.memory_info()->free == Bytes{});
    const auto page = known.memory.part({}, digest_page);
    CHECK(digest_of_range(backend, page) == known.expected(page));
    give_back(backend, *rest);
  });
}

TEST_CASE("threads that ask for digests at the same time get their own") {
  for_each_with_digests([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const KnownMemory known(backend, 2, 7);
    std::vector<std::future<bool>> threads;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      threads.push_back(std::async(std::launch::async, [&, seed] {
        bool ok = true;
        for (std::uint64_t round = 0; round < 5; ++round) {
          const auto pages = random_pages(known.memory.range, 5, seed * 100 + round);
          const auto digests = digests_of(backend, pages);
          for (std::size_t i = 0; ok && i < pages.size(); ++i)
            ok = digests && (*digests)[i] == known.expected(pages[i]);
        }
        return ok;
      }));
    }
    for (auto& thread : threads) CHECK(thread.get());
  });
}
