# SPDX-License-Identifier: Apache-2.0
"""Starting processes with the preload."""
import contextlib
import os
from typing import Iterator

from ...launch import env


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Processes that are started meanwhile are preloaded. LD_PRELOAD is afterwards as it was."""
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = env()["LD_PRELOAD"]
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = before
