# SPDX-License-Identifier: Apache-2.0
"""SGLang's handlers of a release and a resume: which calls they make, in which order, and what they do not forgive."""
import dataclasses
from typing import Any

from sglang.srt.constants import GPU_MEMORY_ALL_TYPES
from sglang.srt.managers.io_struct import (ReleaseMemoryOccupationReqInput, ReleaseMemoryOccupationReqOutput,
                                           ResumeMemoryOccupationReqInput, ResumeMemoryOccupationReqOutput)


@dataclasses.dataclass
class SchedulerWeightUpdaterManager:
    memory_saver_adapter: Any
    offload_tags: set = dataclasses.field(default_factory=set)
    weights_are_there: bool = True

    def release_memory_occupation(self, recv_req: ReleaseMemoryOccupationReqInput):
        tags = recv_req.tags or GPU_MEMORY_ALL_TYPES
        self.offload_tags.update(tags)
        for tag in ("kv_cache", "weights", "cuda_graph"):
            if tag in tags:
                if tag == "weights":
                    assert self.weights_are_there, "copies the model's buffers"
                    self.weights_are_there = False
                self.memory_saver_adapter.pause(tag)
        return ReleaseMemoryOccupationReqOutput()

    def resume_memory_occupation(self, recv_req: ResumeMemoryOccupationReqInput):
        tags = recv_req.tags or GPU_MEMORY_ALL_TYPES
        for tag in tags:
            self.offload_tags.remove(tag)
        for tag in ("cuda_graph", "weights", "kv_cache"):
            if tag in tags:
                self.memory_saver_adapter.resume(tag)
                self.weights_are_there |= tag == "weights"
        return ResumeMemoryOccupationReqOutput()
