// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide::preload {

enum class PythonError { out_of_memory, other };

/// Raises PyTorch's OutOfMemoryError (MemoryError where there is no PyTorch) or RuntimeError in the Python code that
/// the calling thread returns to. For a Python that ignores return codes. False, and nothing done, if the caller is not
/// Python.
bool raise_in_python(PythonError kind) noexcept;

}  // namespace lowtide::preload
