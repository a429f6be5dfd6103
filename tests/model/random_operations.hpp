// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <random>

#include "tests/contract/faulty_driver.hpp"
#include "tests/contract/world.hpp"
#include "tests/model/reference_model.hpp"

namespace lowtide::test {

/// Random operations on the core and on the model, compared after each. Throws std::runtime_error with the seed, the
/// step and the operation where they differ.
class RandomOperations {
 public:
  RandomOperations(std::uint64_t seed, const BackendKind& kind);
  RandomOperations(const RandomOperations&) = delete;
  RandomOperations& operator=(const RandomOperations&) = delete;
  ~RandomOperations();

  void run(int steps);
  /// Frees everything and looks that nothing is left.
  void finish();

 private:
  struct Operation {
    const char* name;
    unsigned weight;
    void (RandomOperations::*run)();
  };
  static const std::vector<Operation>& operations();

  void allocate();
  void free();
  void free_dead();
  void pause();
  void resume();
  void trim();
  void write();
  void write_backup();
  void share();
  void begin_update();
  void commit_update();
  void abort_update();
  void mark_valid();
  void make_context();
  void end_context();

  /// A block is found parked after a pause.
  void park(DeviceAddress address, ReferenceModel::Block& block);
  bool has_parked_updated() const;
  void check_blank(DeviceAddress address, const ReferenceModel::Block& block);
  void step();
  void check(DeviceAddress address, const ReferenceModel::Block& block);
  void check_all();
  void expect(bool holds, const std::string& what) const;
  /// A tenth of the operations meets a driver whose calls fail now and then.
  template <class Call>
  auto with_faults(Call&& call);

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  Bytes random_size();
  std::optional<TagName> random_tag_or_all();
  std::vector<std::uint8_t> random_bytes(Bytes size);
  ReferenceModel::Blocks::iterator random_block();

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  int step_ = 0;
  std::string doing_ = "start";
  bool faults_met_ = false;  ///< by the last with_faults
  FaultyDriver driver_;
  World world_;
  ReferenceModel model_;
  std::uint64_t version_ = 0;
  bool updating_ = false;
  const bool may_have_contexts_;                             ///< further ones of a device, which HIP does not have
  std::vector<std::pair<ContextId, std::size_t>> contexts_;  ///< further ones, with their device
  std::vector<DeviceAddress> dead_;                          ///< blocks that went with their context
};

template <class Call>
auto RandomOperations::with_faults(Call&& call) {
  if (below(10) != 0) return call();
  auto faults = std::make_shared<std::mt19937_64>(random_());
  const auto one_in = 3 + below(30);
  driver_.start([=](std::size_t, std::string_view) { return (*faults)() % one_in == 0; });
  auto result = call();
  for (const auto& made : driver_.stop()) faults_met_ |= !made.ok;
  return result;
}

}  // namespace lowtide::test
