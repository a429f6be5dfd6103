// SPDX-License-Identifier: Apache-2.0
#include "tests/model/random_operations.hpp"

#include <dlfcn.h>

#include <numeric>
#include <stdexcept>

namespace lowtide::test {
namespace {

constexpr std::size_t devices = 2;
constexpr std::size_t most_blocks = 20;
constexpr const char* tags[] = {"weights", "lora", "kv_cache", "scratch", "pinned", "updated"};

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(::dlsym(SimulatedDriver::instance().library(), name));
}

ContextId create_context(std::size_t device) {
  CUcontext context = nullptr;
  const auto create = find<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  if (create(&context, 0, static_cast<int>(device)) != CUDA_SUCCESS) throw std::runtime_error("cuCtxCreate");
  CUcontext popped = nullptr;
  (void)SimulatedDriver::instance().driver().cuCtxPopCurrent_v2(&popped);
  return {reinterpret_cast<std::uintptr_t>(context)};
}

void destroy_context(ContextId context) {
  (void)find<CUresult (*)(CUcontext)>("cuCtxDestroy_v2")(reinterpret_cast<CUcontext>(context.value));
}

}  // namespace

RandomOperations::RandomOperations(std::uint64_t seed, const BackendKind& kind)
    : seed_(seed),
      random_(seed),
      driver_(SimulatedDriver::instance().driver()),
      world_(driver_.table(), devices,
             {seed % 2 == 0 ? BackupSettings::Retain::none : BackupSettings::Retain::automatic},
             std::make_unique<DiskCalls>(), kind),
      model_(world_.settings),
      may_have_contexts_(kind.context == nullptr) {
  auto& settings = world_.settings.tags;
  settings[tag_name("weights")] = {Action::offload, Fill::none};
  settings[tag_name("lora")] = {Action::offload, Fill::none, Place::disk};
  settings[tag_name("kv_cache")] = {Action::discard, Fill::poison};
  settings[tag_name("scratch")] = {Action::discard, Fill::zero};
  settings[tag_name("updated")] = {Action::discard, Fill::none};
  settings[tag_name("updated")].coverage = Coverage::learn;
  settings[tag_name("pinned")] = {Action::keep, Fill::none};
}

RandomOperations::~RandomOperations() {
  for (const auto& [address, block] : model_.blocks) (void)world_.table.free(address);
  for (const auto& [context, device] : contexts_) {
    world_.backend(device).detach(context);
    destroy_context(context);
  }
}

const std::vector<RandomOperations::Operation>& RandomOperations::operations() {
  using Self = RandomOperations;
  static const std::vector<Operation> all{
      {"allocate", 30, &Self::allocate},
      {"free", 22, &Self::free},
      {"free a dead block", 2, &Self::free_dead},
      {"pause", 14, &Self::pause},
      {"resume", 14, &Self::resume},
      {"write", 20, &Self::write},
      {"trim", 4, &Self::trim},
      {"write a backup", 6, &Self::write_backup},
      {"share", 1, &Self::share},
      {"begin an update", 6, &Self::begin_update},
      {"commit an update", 6, &Self::commit_update},
      {"abort an update", 2, &Self::abort_update},
      {"mark valid", 2, &Self::mark_valid},
      {"make a context", 2, &Self::make_context},
      {"end a context", 2, &Self::end_context},
  };
  return all;
}

void RandomOperations::run(int steps) {
  for (int i = 0; i < steps; ++i) step();
}

void RandomOperations::step() {
  ++step_;
  const auto& all = operations();
  const auto total =
      std::accumulate(all.begin(), all.end(), 0u, [](unsigned sum, const auto& o) { return sum + o.weight; });
  auto pick = below(total);
  for (const auto& operation : all) {
    if (pick < operation.weight) {
      doing_ = operation.name;
      faults_met_ = false;
      (this->*operation.run)();
      break;
    }
    pick -= operation.weight;
  }
  if (faults_met_ || step_ % 50 == 0) return check_all();
  if (const auto block = random_block(); block != model_.blocks.end()) check(block->first, block->second);
}

void RandomOperations::expect(bool holds, const std::string& what) const {
  if (holds) return;
  throw std::runtime_error("seed " + std::to_string(seed_) + ", step " + std::to_string(step_) + ", " + doing_ + ": " +
                           what);
}

Bytes RandomOperations::random_size() {
  switch (below(6)) {
    case 0: return {1 + below(64)};
    case 1: return {1 + below(8192)};
    case 2: return {1 + below(1 << 20)};
    case 3: return {(2 << 20) - 2 + below(5)};  // around the border between small and large
    case 4: return 2_MiB;
    default: return {1 + below(5 << 20)};
  }
}

std::optional<TagName> RandomOperations::random_tag_or_all() {
  const auto pick = below(std::size(tags) + 1);
  if (pick == std::size(tags)) return std::nullopt;
  return tag_name(tags[pick]);
}

std::vector<std::uint8_t> RandomOperations::random_bytes(Bytes size) {
  std::vector<std::uint8_t> bytes(size.value);
  auto state = random_();
  for (auto& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::uint8_t>(state >> 56);
  }
  return bytes;
}

ReferenceModel::Blocks::iterator RandomOperations::random_block() {
  if (model_.blocks.empty()) return model_.blocks.end();
  return std::next(model_.blocks.begin(), static_cast<std::ptrdiff_t>(below(model_.blocks.size())));
}

void RandomOperations::allocate() {
  if (model_.blocks.size() >= most_blocks) return free();
  ReferenceModel::Block block;
  block.size = random_size();
  block.tag = tag_name(tags[below(std::size(tags))]);
  if (model_.is_updated(block)) block.size = round_up(block.size, Bytes{8});
  if (model_.is_updated(block) && updating_) block.freshness = Freshness::syncing;
  block.device = below(devices);
  block.context = world_.context(block.device);
  if (!contexts_.empty() && below(3) == 0) std::tie(block.context, block.device) = contexts_[below(contexts_.size())];
  Backend& backend = world_.backend(block.device);
  const auto address =
      with_faults([&] { return world_.table.allocate(backend, block.tag, block.context, block.size); });
  if (!address) return expect(faults_met_, address.error().message());
  expect(address->value % 512 == 0, "the address is not aligned");
  block.bytes = random_bytes(block.size);
  expect(backend.copy_in({*address, block.size}, block.bytes.data()) && backend.finish_copies(),
         "the block cannot be written");
  std::erase(dead_, *address);
  model_.allocate(*address, std::move(block));
}

void RandomOperations::free() {
  const auto block = random_block();
  if (block == model_.blocks.end()) return;
  const auto address = block->first;
  expect(!world_.table.free(address + Bytes{1}) || block->second.size.value == 0,
         "an address inside a block was freed");
  const auto freed = with_faults([&] { return world_.table.free(address); });
  if (!freed) return expect(faults_met_, freed.error().message());
  expect(*freed == BlockTable::Freed::done, "the block was taken for a foreign one");
  model_.free(address);
  expect(!world_.table.find(address), "the block is still there");
}

void RandomOperations::free_dead() {
  if (dead_.empty()) return;
  const auto freed = world_.table.free(dead_.back());
  // An address that is not kept is nobody's block any more.
  const bool forgotten =
      world_.backend().capabilities().reserves_each && (!freed || *freed == BlockTable::Freed::foreign);
  expect(forgotten || (freed && *freed == BlockTable::Freed::done),
         "a block that died with its context cannot be freed");
  dead_.pop_back();
}

void RandomOperations::pause() {
  const auto tag = random_tag_or_all();
  const auto report = with_faults([&] { return world_.transitions.pause(tag, world_.settings, {}); });
  if (report) {
    expect(!model_.refuses(tag), "a shared block, or one that is being updated, was paused");
    for (auto& [address, block] : model_.blocks) {
      if (ReferenceModel::concerns(tag, block) && !block.parked) park(address, block);
    }
    return;
  }
  if (model_.refuses(tag)) return expect(report.error().code() == Code::refused, report.error().message());
  expect(faults_met_, report.error().message());
  for (auto& [address, block] : model_.blocks) {
    const auto view = world_.table.find(address);
    expect(view.has_value(), "a block is gone");
    if (!block.parked && !view->resident) {
      expect(ReferenceModel::concerns(tag, block), "a block of another tag was parked");
      park(address, block);
    }
  }
}

void RandomOperations::resume() {
  const auto tag = random_tag_or_all();
  const auto report = with_faults([&] { return world_.transitions.resume(tag, world_.settings, {}); });
  if (report) return model_.resume(tag);
  // An address that an earlier fault lost may be this program's own memory by now.
  const bool is_lost = report.error().code() == Code::moved && world_.backend().capabilities().reserves_each;
  expect(faults_met_ || is_lost, report.error().message());
}

void RandomOperations::trim() {
  const Bytes parked = world_.backup_bytes();
  const auto report = with_faults([&] { return world_.transitions.trim(); });
  expect(report.has_value(), "a trim failed");
  expect(world_.backup_bytes() <= parked, "a trim made backups");
  expect(report->held == world_.store.backup_bytes() + world_.retained_bytes(), "a trim says other numbers");
}

void RandomOperations::write() {
  const auto entry = random_block();
  if (entry == model_.blocks.end() || entry->second.parked) return;
  auto& block = entry->second;
  const std::uint64_t unit = model_.is_updated(block) ? 8 : 1;
  const Bytes offset{unit * below(block.size.value / unit)};
  const Bytes size{unit * (1 + below((block.size.value - offset.value) / unit))};
  const auto bytes = random_bytes(size);
  ReferenceModel::write(block, offset, size);
  Backend& backend = world_.backend(block.device);
  expect(backend.copy_in({entry->first + offset, size}, bytes.data()) && backend.finish_copies(), "cannot be written");
  std::copy(bytes.begin(), bytes.end(), block.bytes.begin() + static_cast<std::ptrdiff_t>(offset.value));
}

void RandomOperations::write_backup() {
  const auto entry = random_block();
  if (entry == model_.blocks.end()) return;
  auto& block = entry->second;
  const auto bytes = random_bytes(block.size);
  const auto written = world_.table.write_backup({entry->first, block.size}, bytes.data());
  expect(written.has_value() == (block.parked && !block.discarded), "a backup and the model differ");
  if (written) block.bytes = bytes;
}

void RandomOperations::share() {
  const auto entry = random_block();
  if (entry == model_.blocks.end() || !world_.table.find(entry->first)->alone) return;
  if (entry->second.parked) return;
  world_.table.mark_shared(entry->first, "a test");
  entry->second.shared = true;
}

void RandomOperations::make_context() {
  if (contexts_.size() == 4 || !may_have_contexts_) return;
  const auto device = below(devices);
  const auto context = create_context(device);
  expect(world_.backend(device).attach(context).has_value(), "a context cannot be attached");
  contexts_.emplace_back(context, device);
}

void RandomOperations::end_context() {
  if (contexts_.empty()) return;
  const auto [context, device] = contexts_.back();
  contexts_.pop_back();
  world_.table.drop_context(context);
  world_.backend(device).detach(context);
  destroy_context(context);
  for (const auto address : model_.end_context(context)) {
    expect(!world_.table.find(address), "a block outlived its context");
    dead_.push_back(address);
  }
}

void RandomOperations::check(DeviceAddress address, const ReferenceModel::Block& block) {
  const auto view = world_.table.find(address + Bytes{block.size.value - 1});
  expect(view && view->range == AddressRange{address, block.size}, "a block is not where it was");
  expect(view->resident == !block.parked, block.parked ? "a parked block is resident" : "a resident block is parked");
  std::vector<std::uint8_t> bytes(block.size.value);
  Backend& backend = world_.backend(block.device);
  if (block.discarded)
    return expect(!world_.table.read_backup({address, block.size}, bytes.data()), "garbage was kept");
  const bool read = block.parked ? world_.table.read_backup({address, block.size}, bytes.data()).has_value()
                                 : backend.copy_out(bytes.data(), {address, block.size}) && backend.finish_copies();
  expect(read, "a block cannot be read");
  if (!block.blank.empty()) return check_blank(address, block);
  expect(bytes == block.bytes, "a block has other bytes");
}

void RandomOperations::check_all() {
  for (const auto& [address, block] : model_.blocks) check(address, block);
  std::uint64_t counted = 0;
  for (const auto& region : world_.table.regions()) counted += region.blocks;
  expect(counted == model_.blocks.size(), "the regions count other blocks");
}

void RandomOperations::finish() {
  doing_ = "end";
  check_all();
  while (!model_.blocks.empty()) {
    const auto address = model_.blocks.begin()->first;
    expect(world_.table.free(address).has_value(), "a block cannot be freed");
    model_.free(address);
  }
  // A pause takes back what failed frees and allocations had to leave.
  expect(world_.pause().has_value(), "the last pause failed");
  const Held held = held_now();
  expect(held.handles == 0 && held.mappings == 0 && held.used_bytes == 0, "device memory is left");
  expect(world_.backup_bytes() == Bytes{}, "backups are left");
  const Bytes registered = Slab::unit * held.registrations;
  expect(registered <= world_.retained_bytes(), "host memory is registered that nobody keeps");
}

}  // namespace lowtide::test
