# SPDX-License-Identifier: Apache-2.0
"""Lowtide under the name torch_memory_saver. Raises ImportError where the original distribution is installed as well:
both own this folder, and which files lie in it depends on the order in which they were installed."""
import importlib.metadata


def _refuse_beside_the_original() -> None:
    try:
        original = importlib.metadata.version("torch-memory-saver")
    except importlib.metadata.PackageNotFoundError:
        return
    raise ImportError(f"torch_memory_saver {original} and lowtide-torch-memory-saver are both installed and overwrite "
                      "each other: pip uninstall torch-memory-saver lowtide-torch-memory-saver, then install one of them")


_refuse_beside_the_original()

from lowtide.compat.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver  # noqa: E402

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
