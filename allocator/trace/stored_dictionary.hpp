// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "allocator/trace/file_input.hpp"

namespace lowtide::trace {

/// The dictionary of a file, as far as it can be read. Views live as long as it does.
class StoredDictionary {
 public:
  StoredDictionary(const FileInput& input, std::span<const ChunkPlace> chunks, DamageList& damage);

  std::string_view text(StringId id) const noexcept;
  std::vector<TracedFrame> stack(StackId id) const;
  const std::vector<TracedModule>& modules() const noexcept { return modules_; }
  const std::vector<TracedDevice>& devices() const noexcept { return devices_; }

 private:
  template <class Value>
  struct Numbered {
    std::uint32_t id;
    Value value;
  };
  template <class Value>
  static const Value* find(const std::vector<Numbered<Value>>& all, std::uint32_t id) noexcept;

  void read_chunk(const FileInput& input, const ChunkPlace& place, DamageList& damage);
  /// False if it is no entry.
  bool take(EntryKind kind, std::uint32_t id, std::string_view payload);
  /// Modules and devices, whose texts are known only when all was read.
  void name_all(const FileInput& input);

  std::vector<std::unique_ptr<char[]>> chunks_;
  std::vector<Numbered<std::string_view>> strings_;
  std::vector<Numbered<FrameEntry>> frames_;
  std::vector<ModuleEntry> module_entries_;
  std::vector<DeviceEntry> device_entries_;
  std::vector<TracedModule> modules_;
  std::vector<TracedDevice> devices_;
};

}  // namespace lowtide::trace
