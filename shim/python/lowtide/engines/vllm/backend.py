# SPDX-License-Identifier: Apache-2.0
"""vLLM's sleep-mode backend `lowtide` (--sleep-mode-backend lowtide)."""
from typing import List, Optional, Tuple

from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

from .allocator import Allocator
from .tags import WEIGHTS


class LowtideBackend(SleepModeBackend):
    """Level 1 copies the weights to the host, level 2 drops them; LoRA is copied by both, the KV cache dropped."""

    def suspend(self, level: int = 1) -> None:
        Allocator.get_instance().sleep((WEIGHTS,) if level == 1 else ())
        self._state = "SUSPENDED"

    def discard(self, tags: Tuple[str, ...]) -> None:
        Allocator.get_instance().discard(tags)
        self._state = "SUSPENDED"

    def resume(self, tags: Optional[List[str]] = None) -> None:
        self._state = "RESUMING"
        try:
            Allocator.get_instance().wake_up(tags)
        except BaseException:
            self._state = "SUSPENDED"
            raise
        self._state = "RUNNING"

    @classmethod
    def preserves_communicators(cls) -> bool:
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        return True

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        return True
