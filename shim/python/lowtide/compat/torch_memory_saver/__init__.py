# SPDX-License-Identifier: Apache-2.0
"""torch_memory_saver's Python interface:

    import lowtide.compat.torch_memory_saver as torch_memory_saver

What its own package drops, ends the process for or returns as a code is an exception here (lowtide.Error), and nothing is
lost by it.
"""
from .launch import configure_subprocess
from .saver import TorchMemorySaver

torch_memory_saver = TorchMemorySaver()

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
