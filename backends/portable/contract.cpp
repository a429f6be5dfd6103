// SPDX-License-Identifier: Apache-2.0
#include "backends/portable/contract.hpp"

#include <algorithm>
#include <span>

#include "allocator/core/trial_memory.hpp"

namespace lowtide::portable {
namespace {

using Bytewise = std::vector<std::uint8_t>;

Bytewise pattern(std::size_t size, std::uint64_t seed) {
  Bytewise bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::uint8_t>((i * 131 + (i >> 8) * 7 + seed * 29) ^ seed);
  return bytes;
}

/// A resident block. The first call that fails is kept, and nothing is done after it.
class Block : private TrialMemory {
 public:
  Block(Backend& backend, std::uint64_t granules)
      : TrialMemory(backend, backend.capabilities().granularity * granules) {
    then([this] { return reserve(); });
    furnish();
  }

  const Status& status() const { return status_; }
  Bytes size() const { return size_; }
  AddressRange part(Bytes offset, Bytes size) const { return {range_.start + offset, size}; }

  void furnish() {
    then([this] { return take(backend_.create(range_)); });
    put();
  }
  void put() {
    then([this] { return map(); });
    then([this] { return backend_.set_access(range_, {}); });
  }
  void unmap_it() {
    then([this] { return backend_.synchronise(); });
    then([this] { return unmap(); });
  }
  void park() {
    unmap_it();
    then([this] { return release(); });
    if (backend_.capabilities().reserves_each) then([this] { return backend_.keep_address(range_); });
  }
  void fill(Bytes offset, Bytes size, std::uint8_t value) {
    then([&] { return backend_.fill(part(offset, size), value); });
  }
  void copy_in(Bytes offset, const Bytewise& bytes) {
    then([&] { return backend_.copy_in(part(offset, {bytes.size()}), bytes.data()); });
  }
  void write(Bytes offset, const Bytewise& bytes) {
    copy_in(offset, bytes);
    then([this] { return backend_.finish_copies(); });
  }
  void expect(Bytes offset, const Bytewise& expected) {
    Bytewise bytes(expected.size(), static_cast<std::uint8_t>(~expected.front()));
    then([&] { return backend_.copy_out(bytes.data(), part(offset, {bytes.size()})); });
    then([this] { return backend_.finish_copies(); });
    if (!status_) return;
    const auto at = std::mismatch(expected.begin(), expected.end(), bytes.begin()).first - expected.begin();
    if (static_cast<std::size_t>(at) == expected.size()) return;
    status_ = fail(Error::format(Code::corrupt, "byte %td of %zu at offset %llu is %d, and %d was written", at,
                                 expected.size(), static_cast<unsigned long long>(offset.value),
                                 bytes[static_cast<std::size_t>(at)], expected[static_cast<std::size_t>(at)]));
  }
  template <class Call>
  void then(Call call) {
    if (status_) status_ = call();
  }

 private:
  Status status_;
};

Status is_described(Backend& backend) {
  const Bytes granule = backend.capabilities().granularity;
  const bool whole = granule.value > 0 && (granule.value & (granule.value - 1)) == 0;
  if (whole && !backend.device_name().empty() && !backend.reason().empty() && *backend.name() != '\0') return {};
  return fail(Code::unsupported, "no name, no reason, or a granularity that is no power of two");
}

Status reservation_is_aligned(Backend& backend) {
  const Bytes granule = backend.capabilities().granularity;
  const auto start = backend.reserve(granule * 3);
  if (!start) return fail(start.error());
  if (auto status = backend.release_reservation({*start, granule * 3}); !status) return status;
  return start->value % granule.value == 0 ? Status() : fail(Code::unsupported, "the address is not");
}

Status bytes_survive(Backend& backend) {
  Block block(backend, 2);
  for (const std::size_t size : {1u, 3u, 511u, 4097u, 1u << 20, (1u << 20) + 13}) {
    for (const std::uint64_t offset : {0u, 1u, 513u, 4095u}) {
      block.write({offset}, pattern(size, offset + size));
      block.expect({offset}, pattern(size, offset + size));
    }
  }
  const Bytes border{backend.capabilities().granularity.value - 7};
  block.write(border, pattern(15, 3));
  block.expect(border, pattern(15, 3));
  const Bytes last{block.size().value - 1};
  block.write(last, {42});
  block.expect(last, {42});
  return block.status();
}

Status copy_keeps_to_its_range(Backend& backend) {
  Block block(backend, 1);
  block.write({}, Bytewise(64, 1));
  block.write({11}, Bytewise(13, 2));
  Bytewise expected(64, 1);
  std::fill_n(expected.begin() + 11, 13, std::uint8_t{2});
  block.expect({}, expected);
  return block.status();
}

Status fill_keeps_to_its_range(Backend& backend) {
  Block block(backend, 1);
  block.write({}, Bytewise(4096, 9));
  block.fill({5}, {1001}, 0xcd);
  Bytewise expected(4096, 9);
  std::fill_n(expected.begin() + 5, 1001, std::uint8_t{0xcd});
  block.expect({}, expected);
  return block.status();
}

Status order_is_kept(Backend& backend) {
  Block block(backend, 1);
  const auto bytes = pattern(block.size().value, 1);
  block.fill({}, block.size(), 0);
  block.copy_in({}, bytes);
  block.expect({}, bytes);
  return block.status();
}

Status other_memory_comes(Backend& backend) {
  Block block(backend, 2);
  block.write({}, pattern(block.size().value, 5));
  block.park();
  if (!block.status()) return block.status();
  block.furnish();
  // No driver promises plain memory its address: that it may be had back is a fact of the trial.
  if (!block.status() && block.status().error().code() == Code::moved && !backend.capabilities().stable_address)
    return {};
  block.write({}, pattern(block.size().value, 6));
  block.expect({}, pattern(block.size().value, 6));
  return block.status();
}

Status same_memory_comes_back(Backend& backend) {
  Block block(backend, 1);
  block.write({}, pattern(block.size().value, 6));
  block.unmap_it();
  block.put();
  block.expect({}, pattern(block.size().value, 6));
  return block.status();
}

Status copies_within(Backend& backend) {
  Block block(backend, 2);
  const Bytes half{block.size().value / 2};
  block.write({}, pattern(half.value, 7));
  block.then([&] { return backend.copy_within(block.part(half, half), block.part({}, half).start); });
  block.then([&] { return backend.finish_copies(); });
  block.expect(half, pattern(half.value, 7));
  return block.status();
}

/// Where the device has no digests, its pages are copied: that is no failure.
Status digests_are_the_hosts(Backend& backend) {
  Block block(backend, 1);
  const auto bytes = pattern(block.size().value, 8);
  block.write({}, bytes);
  const auto page = block.part({}, {std::min<std::uint64_t>(bytes.size(), digest_page.value)});
  PageDigest digest{};
  block.then([&] { return backend.digest({&page, 1}, {&digest, 1}); });
  if (!block.status() && block.status().error().code() == Code::unsupported) return {};
  if (!block.status()) return block.status();
  return digest == digest_of(bytes.data(), page.size.value, backend.digest_key())
             ? Status()
             : fail(Code::corrupt, "the device's digest is another one");
}

Status too_much_is_refused(Backend& backend) {
  const auto info = backend.memory_info();
  if (!info) return fail(info.error());
  const Bytes granule = backend.capabilities().granularity;
  const Bytes size = round_up(info->total, granule) + granule;
  const auto start = backend.reserve(size);
  const auto created = start ? backend.create({*start, size}) : fail(start.error());
  if (created) (void)backend.release(*created);
  if (start) (void)backend.release_reservation({*start, size});
  if (created) return fail(Code::unsupported, "more memory than the device has was given");
  if (created.error().code() != Code::device_memory) return fail(created.error());
  return Block(backend, 1).status();
}

/// What a check needs of a backend: all are asked what they do with bytes.
enum class Needs { nothing, pause, own_address };

bool has(const Capabilities& can, Needs needs) {
  switch (needs) {
    case Needs::nothing: return true;
    case Needs::pause: return can.gives_back;
    case Needs::own_address: return can.gives_back && can.stable_address;
  }
  return false;
}

struct Asked {
  const char* name;
  Status (*check)(Backend&);
  Needs needs = Needs::nothing;
};

constexpr Asked checks[] = {
    {"a backend says what it is", is_described},
    {"a reservation is aligned to the granularity", reservation_is_aligned},
    {"bytes copied in come out again, whatever their size and alignment", bytes_survive},
    {"a copy touches nothing beside its range", copy_keeps_to_its_range},
    {"a fill writes every byte of its range and no other", fill_keeps_to_its_range},
    {"copies that were started in order take effect in order", order_is_kept},
    {"memory leaves and other memory comes behind the same address", other_memory_comes, Needs::pause},
    {"bytes survive being mapped anew with the same memory", same_memory_comes_back, Needs::own_address},
    {"bytes are copied within the device", copies_within},
    {"the device's digests are those of the host", digests_are_the_hosts},
    {"more than the device has is refused as such, and nothing is lost", too_much_is_refused},
};

}  // namespace

std::vector<Check> check_contract(Backend& backend) {
  std::vector<Check> done;
  for (const auto& [name, check, needs] : checks) {
    if (has(backend.capabilities(), needs)) done.push_back({name, check(backend)});
  }
  return done;
}

}  // namespace lowtide::portable
