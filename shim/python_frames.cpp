// SPDX-License-Identifier: Apache-2.0
// By what the interpreter in the process exports; we link none.
#include "shim/python_frames.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "allocator/policy/python_module.hpp"

namespace lowtide {
namespace {

using Address = std::uintptr_t;

constexpr std::size_t longest_text = 4096;

/// How an object begins, in all versions with a GIL.
struct ObjectHead {
  std::uint64_t references;
  Address type;
};

/// And a str.
struct TextHead : ObjectHead {
  std::uint64_t length;  ///< in characters
  std::uint64_t hash;
  std::uint32_t state;  ///< bits 2 to 4: bytes of a character; bit 5: they follow the object; bit 6: all are ASCII
};

void add_utf8(std::string& text, std::uint32_t sign) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto add_rest = [&](int bits) { add(0x80 | ((sign >> bits) & 0x3f)); };
  if (sign < 0x80) return add(sign);
  if (sign < 0x800) {
    add(0xc0 | (sign >> 6));
  } else if (sign < 0x10000) {
    add(0xe0 | (sign >> 12));
    add_rest(6);
  } else {
    add(0xf0 | (sign >> 18));
    add_rest(12);
    add_rest(6);
  }
  add_rest(0);
}

/// Reads objects of the interpreter. Until some functions were found, with every object of the type that it has to be,
/// it reads through the kernel, which refuses an address that is none: the layout may be wrong.
class Reader {
 public:
  Reader(const PythonLayout& layout, SymbolLookup symbol)
      : layout_(layout),
        code_type_(reinterpret_cast<Address>(symbol("PyCode_Type"))),
        text_type_(reinterpret_cast<Address>(symbol("PyUnicode_Type"))) {}

  /// 0 where there is nothing.
  Address first_frame(Address thread) {
    const Address frame = pointer(thread + layout_.thread_frame);
    return layout_.holder_frame && frame != 0 ? pointer(frame + *layout_.holder_frame) : frame;
  }
  Address back(Address frame) { return pointer(frame + layout_.frame_back); }

  /// Nothing for a frame of the interpreter's own, which has no code of Python.
  std::optional<PythonFrame> function(Address frame) {
    constexpr Address marks = 7;  // 3.14 keeps some in the low bits of a reference
    const Address code = pointer(frame + layout_.frame_code) & ~marks;
    if (code == 0 || value<ObjectHead>(code).type != code_type_) return std::nullopt;
    auto file = text(pointer(code + layout_.code_file));
    auto name = text(pointer(code + layout_.code_name));
    if (!file || !name) return std::nullopt;
    ++functions_;
    return PythonFrame{{}, std::move(*file), std::move(*name)};
  }

 private:
  template <class Value>
  Value value(Address address) {
    Value value{};
    read(address, &value, sizeof value);
    return value;
  }
  Address pointer(Address address) { return value<Address>(address); }

  /// Leaves `to` as it is where there is no memory.
  void read(Address address, void* to, std::size_t bytes) {
    constexpr int enough = 2;  // between them the way back was gone once
    if (functions_ >= enough) {
      std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
      return;
    }
    const iovec here{to, bytes};
    const iovec there{reinterpret_cast<void*>(address), bytes};
    (void)::process_vm_readv(::getpid(), &here, 1, &there, 1, 0);
  }

  std::optional<std::string> text(Address object) {
    const auto head = value<TextHead>(object);
    const std::size_t kind = (head.state >> 2) & 7;
    const bool compact = (head.state >> 5 & 1) != 0;
    const bool ascii = (head.state >> 6 & 1) != 0;
    if (head.type != text_type_ || !compact || head.length > longest_text || (kind != 1 && kind != 2 && kind != 4))
      return std::nullopt;
    std::string units(head.length * kind, '\0');
    read(object + (ascii ? layout_.ascii_text : layout_.other_text), units.data(), units.size());
    if (ascii) return units;
    std::string text;
    for (std::size_t i = 0; i < head.length; ++i) {
      std::uint32_t sign = 0;  // little-endian, as both machines are
      std::memcpy(&sign, units.data() + i * kind, kind);
      add_utf8(text, sign);
    }
    return text;
  }

  const PythonLayout& layout_;
  const Address code_type_;
  const Address text_type_;
  int functions_ = 0;
};

bool is_package(const std::string& folder) { return ::access((folder + "/__init__.py").c_str(), F_OK) == 0; }

}  // namespace

PythonWalk walk_python(SymbolLookup symbol) {
  const auto this_thread = reinterpret_cast<void* (*)()>(symbol("PyGILState_GetThisThreadState"));
  void* const thread = this_thread == nullptr ? nullptr : this_thread();
  if (thread == nullptr) return {};
  const auto layout = python_layout(symbol);
  if (!layout) return {{}, true};
  Reader reader(*layout, symbol);
  PythonWalk walk;
  Address frame = reader.first_frame(reinterpret_cast<Address>(thread));
  const bool any = frame != 0;
  for (std::size_t i = 0; frame != 0 && i < PythonWalk::most; ++i, frame = reader.back(frame)) {
    auto function = reader.function(frame);
    if (!function) continue;
    const bool same_file = !walk.frames.empty() && walk.frames.back().path == function->path;
    function->module = same_file ? walk.frames.back().module : module_of(function->path, &is_package);
    walk.frames.push_back(std::move(*function));
  }
  walk.hidden = any && walk.frames.empty();
  return walk;
}

}  // namespace lowtide
