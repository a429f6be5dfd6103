// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// A device's ordinal in this process, as the vendor's API counts them.
enum class DeviceId : int {};
constexpr int index_of(DeviceId device) { return static_cast<int>(device); }

/// An address in the device's view. Arithmetic only with Bytes.
struct DeviceAddress {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const DeviceAddress&) const = default;
  friend constexpr DeviceAddress operator+(DeviceAddress a, Bytes n) { return {a.value + n.value}; }
  friend constexpr Bytes operator-(DeviceAddress a, DeviceAddress b) { return {a.value - b.value}; }
};

struct AddressRange {
  DeviceAddress start;
  Bytes size;

  constexpr DeviceAddress end() const { return start + size; }
  constexpr bool contains(DeviceAddress address) const { return start <= address && address < end(); }
  constexpr bool operator==(const AddressRange&) const = default;
};

/// The vendor's context handle, opaque here; 0 is none.
struct ContextId {
  std::uintptr_t value = 0;
  constexpr auto operator<=>(const ContextId&) const = default;
};

/// The vendor's handle of physical memory, opaque here; 0 is none.
struct PhysicalId {
  std::uint64_t value = 0;
  constexpr bool operator==(const PhysicalId&) const = default;
};

/// What gave a block its tag: a row of a table that a higher layer keeps; 0 is none.
enum class OriginId : std::uint32_t {};

/// A tag's name, `[A-Za-z0-9_-]{1,63}`; fixed size, so that carrying it never allocates.
class TagName {
 public:
  static constexpr std::size_t most = 63;
  /// Nothing if `text` is not a tag name.
  static std::optional<TagName> parse(std::string_view text) noexcept;

  std::string_view view() const noexcept { return text_.data(); }
  const char* c_str() const noexcept { return text_.data(); }
  auto operator<=>(const TagName& other) const noexcept { return view() <=> other.view(); }
  bool operator==(const TagName& other) const noexcept { return view() == other.view(); }

 private:
  std::array<char, most + 1> text_{};
};

/// What a pause does with a block.
enum class Action : std::uint8_t { keep, offload, discard };

/// What a discarded block holds after its resume. `none`: whatever the driver gives, zeros on NVIDIA, never promised.
enum class Fill : std::uint8_t { none, zero, poison };

/// Where a pause puts what it copies out.
enum class Place : std::uint8_t { host, disk };

/// What a kernel or a copy meets at the address of an offloaded block that is parked: nothing, or the block's bytes in
/// host memory, which it may read.
enum class PausedAccess : std::uint8_t { fault, host };

/// What the bytes of a tag are to the process: its only copy of them, which somebody has to write anew after they were
/// dropped, or what it makes itself as it goes, to which a pause that drops it does no harm.
enum class Content : std::uint8_t { persistent, scratch };

/// Whether a block holds what its owner put there: yes; no, since nobody has written it anew; not yet, since an update
/// is under way. In the order of how bad it is: a tag shows its worst block.
enum class Freshness : std::uint8_t { valid, stale, syncing };

/// What becomes of memory that came back stale: nothing; it is filled with a pattern, and at the end of an update what
/// still holds it is told (`warn`), stops the update (`enforce`), or is put back as it was before (`learn`).
enum class Coverage : std::uint8_t { off, warn, enforce, learn };

/// What a scope says of its blocks, in place of the settings of their tag. Its owner pauses and resumes and does not
/// know of updates: what is dropped counts as scratch.
struct Treatment {
  Action pause = Action::offload;
  Place store = Place::host;
  bool operator==(const Treatment&) const = default;
};

/// What a block carries from its allocation on.
struct Label {
  Label(const TagName& its_tag, std::optional<Treatment> its_treatment = {}) : tag(its_tag), treatment(its_treatment) {}
  Label() = default;
  bool operator==(const Label&) const = default;

  TagName tag;
  std::optional<Treatment> treatment;
};

const char* to_text(Action action) noexcept;
const char* to_text(Fill fill) noexcept;
const char* to_text(Place place) noexcept;
const char* to_text(PausedAccess access) noexcept;
const char* to_text(Content content) noexcept;
const char* to_text(Freshness freshness) noexcept;
const char* to_text(Coverage coverage) noexcept;

}  // namespace lowtide
