// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide::preload {

/// Raises PyTorch's OutOfMemoryError, or MemoryError where there is no PyTorch, in the Python code that the calling
/// thread returns to. For a Python that ignores return codes. False, and nothing done, if the caller is not Python.
bool raise_out_of_memory_in_python() noexcept;

}  // namespace lowtide::preload
