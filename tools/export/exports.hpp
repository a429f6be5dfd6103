// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "allocator/trace/reader.hpp"
#include "tools/export/output.hpp"

namespace lowtide::tools {

/// Perfetto's format (https://ui.perfetto.dev): a track for each tag of each device, phases, pauses, resumes and waits.
void export_perfetto(trace::Reader& reader, Output& output);

/// A memory snapshot of PyTorch, for its memory viewer. Of one process, which is a place in Reader::processes().
void export_snapshot(trace::Reader& reader, std::uint32_t process, Output& output);

/// A line for each event.
void export_csv(trace::Reader& reader, Output& output);

}  // namespace lowtide::tools
