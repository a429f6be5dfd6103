// SPDX-License-Identifier: Apache-2.0
// The operations on the tag that is updated, whose coverage is learn.
#include "tests/model/random_operations.hpp"

namespace lowtide::test {
namespace {

const TagName& updated() {
  static const TagName tag = tag_name("updated");
  return tag;
}

}  // namespace

void RandomOperations::park(DeviceAddress address, ReferenceModel::Block& block) {
  model_.park(block);
  if (!block.parked || !model_.is_updated(block)) return;
  // Where a neighbour in its memory waits for an update, a valid block is copied out instead.
  if (world_.table.find(address)->freshness != Freshness::valid) return;
  block.discarded = false;
  block.freshness = Freshness::valid;
  block.held.clear();
}

bool RandomOperations::has_parked_updated() const {
  return std::any_of(model_.blocks.begin(), model_.blocks.end(),
                     [](const auto& entry) { return entry.second.tag == updated() && entry.second.parked; });
}

void RandomOperations::begin_update() {
  if (updating_ || has_parked_updated()) return;
  const auto begun = world_.transitions.begin_update(updated(), ++version_);
  if (!begun) return expect(false, begun.error().message());
  updating_ = true;
  model_.begin(updated());
}

void RandomOperations::commit_update() {
  const auto commit = [&] { return world_.transitions.commit_update(updated(), version_, world_.settings); };
  if (!updating_) return;
  const bool lacks = model_.lacks(updated());
  auto committed = with_faults(commit);
  // What it had put back before it failed is not told from what the program writes.
  if (!committed && committed.error().code() != Code::refused) {
    expect(faults_met_, committed.error().message());
    committed = commit();
  }
  expect(committed.has_value() == !lacks,
         committed ? "an update that wrote too little was committed" : committed.error().message());
  updating_ = false;
  if (committed) return model_.commit(updated());
  model_.end(updated(), true);
}

void RandomOperations::abort_update() {
  expect(world_.transitions.abort_update(updated()).has_value(), "an abort failed");
  if (!std::exchange(updating_, false)) return;
  model_.end(updated(), false);
}

void RandomOperations::mark_valid() {
  const bool stale = std::any_of(model_.blocks.begin(), model_.blocks.end(), [](const auto& entry) {
    return entry.second.tag == updated() && entry.second.freshness == Freshness::stale;
  });
  if (updating_ || !stale || has_parked_updated()) return;
  const auto marked = world_.transitions.mark_valid(updated(), ++version_, world_.settings);
  if (!marked) return expect(false, marked.error().message());
  model_.commit(updated());
}

void RandomOperations::check_blank(DeviceAddress address, const ReferenceModel::Block& block) {
  std::vector<std::uint8_t> bytes(block.size.value);
  Backend& backend = world_.backend(block.device);
  expect(backend.copy_out(bytes.data(), {address, block.size}) && backend.finish_copies(), "a block cannot be read");
  for (std::size_t word = 0; word < block.blank.size(); ++word) {
    auto expected = blank_word(address.value + 8 * word);
    if (!block.blank[word]) std::memcpy(&expected, &block.bytes[8 * word], 8);
    expect(std::memcmp(&bytes[8 * word], &expected, 8) == 0, "a word of a stale block is not what it should be");
  }
}

}  // namespace lowtide::test
