// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "tools/export/exports.hpp"
#include "tools/trace/load.hpp"

namespace lowtide::tools {
namespace {

using trace::Op;

/// A cell of text: quoted where a comma, a quote or an end of line would be taken for one of the table.
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

/// The kind in words, as the op says what it is.
std::string kind_text(const trace::Event& event) {
  switch (event.op) {
    case Op::alloc:
    case Op::free:
    case Op::ipc_export:
    case Op::sample_unmanaged: return trace::to_text(static_cast<trace::Memory>(event.kind));
    case Op::copy: return trace::to_text(static_cast<trace::Direction>(event.kind));
    case Op::wait: return trace::to_text(static_cast<trace::Wait>(event.kind));
    case Op::pause_end:
    case Op::resume_end:
    case Op::refusal: return std::to_string(trace::result_of(event));
    default: return "";
  }
}

}  // namespace

void export_csv(trace::Reader& reader, Output& output) {
  output.write("time_ns,host,pid,thread,device,event,kind,managed,name,address,bytes,value\n");
  for_each_event(reader, [&](const trace::TraceEvent& traced) {
    const auto& event = traced.event;
    const auto& process = reader.processes()[traced.process];
    output.write(fmt::format("{},{},{},{},{},{},{},{},{},{:#x},{},{}\n", traced.time, cell(process.host), process.pid,
                             traced.thread, event.device == trace::Event::no_device ? "" : std::to_string(event.device),
                             trace::to_text(event.op), kind_text(event), trace::is_managed(event) ? 1 : 0,
                             cell(reader.text(traced.process, event.name)), event.address, event.bytes, event.value));
  });
}

}  // namespace lowtide::tools
