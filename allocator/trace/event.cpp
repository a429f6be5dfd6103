// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/event.hpp"

namespace lowtide::trace {

namespace {

constexpr const char* unknown = "unknown";

}  // namespace

bool is_known(Op op) noexcept { return op != Op::none && to_text(op) != unknown; }

const char* to_text(Op op) noexcept {
  switch (op) {
    case Op::none: return "none";
    case Op::thread: return "thread";
    case Op::alloc: return "alloc";
    case Op::free: return "free";
    case Op::map: return "map";
    case Op::unmap: return "unmap";
    case Op::out_of_memory: return "out_of_memory";
    case Op::context_created: return "context_created";
    case Op::context_destroyed: return "context_destroyed";
    case Op::pause_begin: return "pause_begin";
    case Op::pause_end: return "pause_end";
    case Op::resume_begin: return "resume_begin";
    case Op::resume_end: return "resume_end";
    case Op::copy: return "copy";
    case Op::wait: return "wait";
    case Op::refusal: return "refusal";
    case Op::phase: return "phase";
    case Op::update_begin: return "update_begin";
    case Op::update_commit: return "update_commit";
    case Op::update_abort: return "update_abort";
    case Op::ipc_export: return "ipc_export";
    case Op::ipc_open: return "ipc_open";
    case Op::ipc_close: return "ipc_close";
    case Op::sample_device: return "sample_device";
    case Op::sample_tag: return "sample_tag";
    case Op::sample_unmanaged: return "sample_unmanaged";
    case Op::sample_others: return "sample_others";
    case Op::shutdown: return "shutdown";
  }
  return unknown;
}

const char* to_text(Memory memory) noexcept {
  switch (memory) {
    case Memory::unknown: break;
    case Memory::runtime: return "runtime";
    case Memory::driver: return "driver";
    case Memory::async: return "async";
    case Memory::pool: return "pool";
    case Memory::handle: return "handle";
    case Memory::array: return "array";
    case Memory::managed: return "managed";
    case Memory::host_pinned: return "host_pinned";
    case Memory::host_registered: return "host_registered";
    case Memory::slack: return "slack";
  }
  return unknown;
}

const char* to_text(Direction direction) noexcept {
  switch (direction) {
    case Direction::unknown: break;
    case Direction::to_device: return "to_device";
    case Direction::to_host: return "to_host";
    case Direction::on_device: return "on_device";
    case Direction::backup_out: return "backup_out";
    case Direction::backup_in: return "backup_in";
  }
  return unknown;
}

const char* to_text(Wait wait) noexcept {
  switch (wait) {
    case Wait::unknown: break;
    case Wait::room: return "room";
    case Wait::gate: return "gate";
    case Wait::capture: return "capture";
    case Wait::other: return "other";
    case Wait::drain: return "drain";
  }
  return unknown;
}

}  // namespace lowtide::trace
