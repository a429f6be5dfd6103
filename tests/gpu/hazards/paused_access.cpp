// SPDX-License-Identifier: Apache-2.0
// Parked blocks that stay readable at their address.
#include <algorithm>

#include "tests/gpu/hazards/stage.hpp"

namespace hazards {
namespace {

class Readable {
 public:
  Readable() { require(driver().set("tag.lora.paused_access", "host") == LOWTIDE_OK, driver().last_error()); }
  ~Readable() { driver().set("tag.lora.paused_access", "fault"); }
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;
};

std::string milliseconds(double seconds) { return std::to_string(static_cast<int>(seconds * 1000)) + " ms"; }

// Out of the parked block into `active`, by a copy or by a kernel, and what is then there.
void check_copied(Stage& stage, const Block& parked, const Block& active, const Stream* by_kernel) {
  must(driver().set_bytes(active.address, 0, active.size), "cuMemsetD8");
  if (by_kernel == nullptr) {
    must(driver().within(active.address, parked.address, parked.size), "cuMemcpyDtoD");
  } else {
    must(driver().synchronize(), "cuCtxSynchronize");
    stage.copy(active.address, parked.address, parked.size, by_kernel->get());
    must(driver().synchronize_stream(by_kernel->get()), "cuStreamSynchronize");
  }
  std::vector<std::uint8_t> found(parked.size);
  must(driver().to_host(found.data(), active.address, found.size()), "cuMemcpyDtoH");
  Stage::check(parked, found);
}

std::string parked_blocks_are_read_with_no_free_device_byte(Stage& stage) {
  const Readable readable;
  const Stream stream;
  stage.make_usual("lora");
  stage.make("lora", 3001);
  const std::size_t parked = stage.blocks().size();
  std::size_t largest = 0;
  for (const Block& block : stage.blocks()) largest = std::max(largest, block.size);
  const Block& active = stage.make(nullptr, largest);
  const std::size_t before = Stage::free_bytes();
  const lowtide_report paused = stage.pause("lora");
  const std::size_t freed = Stage::free_bytes() - before;
  require(freed >= (stage.total() - active.size) / 100 * 99, std::to_string(freed >> 20U) + " MiB came free");
  {
    const Hog hog;
    for (std::size_t i = 0; i < parked; ++i) {
      check_copied(stage, stage.blocks()[i], active, nullptr);
      check_copied(stage, stage.blocks()[i], active, &stream);
      stage.check(stage.blocks()[i]);
    }
  }
  const lowtide_report resumed = stage.resume("lora");
  for (std::size_t i = 0; i < parked; ++i) stage.check(stage.blocks()[i]);
  const lowtide_report again = stage.pause("lora");
  stage.resume("lora");
  for (std::size_t i = 0; i < parked; ++i) stage.check(stage.blocks()[i]);
  return std::to_string(freed >> 20U) + " MiB freed; pause " + milliseconds(paused.seconds) + ", resume " +
         milliseconds(resumed.seconds) + ", second pause " + milliseconds(again.seconds);
}

std::string the_host_reads_and_writes_a_readable_parked_block(Stage& stage) {
  const Readable readable;
  const Block& block = stage.make("lora", stage.sizes().block_bytes + 777);
  stage.pause("lora");
  void* address = reinterpret_cast<void*>(block.address);
  std::vector<std::uint8_t> found(block.size);
  require(driver().read_paused(address, found.data(), found.size()) == LOWTIDE_OK, driver().last_error());
  Stage::check(block, found);
  const std::vector<std::uint8_t> other(block.size, 0x3D);
  require(driver().write_paused(address, other.data(), other.size()) == LOWTIDE_OK, driver().last_error());
  must(driver().to_host(found.data(), block.address, found.size()), "cuMemcpyDtoH");
  require(found == other, "the device does not read what the host wrote");
  stage.resume("lora");
  must(driver().to_host(found.data(), block.address, found.size()), "cuMemcpyDtoH");
  require(found == other, "what the host wrote did not come back");
  return std::to_string(block.size) + " bytes";
}

}  // namespace

std::vector<Hazard> paused_access_hazards() {
  return {{"parked_blocks_are_read_with_no_free_device_byte", parked_blocks_are_read_with_no_free_device_byte},
          {"the_host_reads_and_writes_a_readable_parked_block", the_host_reads_and_writes_a_readable_parked_block}};
}

}  // namespace hazards
