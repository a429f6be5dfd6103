// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/sampler.hpp"

#include <algorithm>

namespace lowtide {

std::vector<DeviceSample> Sampler::take() {
  const std::lock_guard lock(mutex_);
  return take_locked();
}

std::vector<DeviceSample> Sampler::try_to_take() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? take_locked() : std::vector<DeviceSample>();
}

std::vector<DeviceSample> Sampler::take_locked() {
  std::vector<DeviceSample> samples;
  if (stopped_) return samples;
  const auto sums = unmanaged_.sums();
  for (const auto& [device, context] : runtime_.devices_in_use()) {
    const auto memory = platform_.memory_info(context);
    if (!memory) continue;  // its context is going
    DeviceSample sample;
    sample.device = device;
    sample.memory = *memory;
    if (const auto found = sums.find(device); found != sums.end()) sample.unmanaged = found->second;
    sample.others = runtime_.policy().others_on(device);
    samples.push_back(std::move(sample));
  }
  add_tags(samples);
  return samples;
}

/// A tag may have several regions on a device.
void Sampler::add_tags(std::vector<DeviceSample>& samples) {
  for (const auto& region : runtime_.blocks().regions()) {
    const auto sample =
        std::find_if(samples.begin(), samples.end(), [&](const auto& each) { return each.device == region.device; });
    if (sample == samples.end()) continue;
    auto& tags = sample->tags;
    auto tag = std::find_if(tags.begin(), tags.end(), [&](const auto& each) { return each.tag == region.label.tag; });
    if (tag == tags.end()) tag = tags.insert(tag, DeviceSample::Tag{region.label.tag, {}, {}, {}});
    tag->resident += region.on_device;
    tag->parked += region.resident + region.parked - region.on_device;
    tag->backup += region.backup;
    sample->slack += region.slack;
  }
}

Bytes Sampler::free_memory(DeviceId device) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return {};
  const auto in_use = runtime_.devices_in_use();
  const auto context = in_use.find(device);
  if (context == in_use.end()) return {};
  const auto memory = platform_.memory_info(context->second);
  return memory ? memory->free : Bytes{};
}

void Sampler::stop() noexcept {
  constexpr std::chrono::seconds patience{1};
  stopped_ = true;
  if (mutex_.try_lock_for(patience)) mutex_.unlock();
}

}  // namespace lowtide
