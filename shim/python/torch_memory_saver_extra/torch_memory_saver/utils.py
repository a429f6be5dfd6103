# SPDX-License-Identifier: Apache-2.0
"""Where torch_memory_saver's users ask for the path of its libraries."""
from lowtide.compat.torch_memory_saver.utils import get_binary_path_from_package

__all__ = ["get_binary_path_from_package"]
