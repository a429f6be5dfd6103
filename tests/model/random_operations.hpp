// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  void make_context();
  void end_context();

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
  const bool may_have_contexts_;                             ///< further ones of a device, which HIP does not have
  std::vector<std::pair<ContextId, std::size_t>> contexts_;  ///< further ones, with their device
  std::vector<DeviceAddress> dead_;                          ///< blocks that went with their context
};

}  // namespace lowtide::test
