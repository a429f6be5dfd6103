# SPDX-License-Identifier: Apache-2.0
import dataclasses
from typing import List, Optional


@dataclasses.dataclass
class ReleaseMemoryOccupationReqInput:
    tags: Optional[List[str]] = None


@dataclasses.dataclass
class ReleaseMemoryOccupationReqOutput:
    pass


@dataclasses.dataclass
class ResumeMemoryOccupationReqInput:
    tags: Optional[List[str]] = None


@dataclasses.dataclass
class ResumeMemoryOccupationReqOutput:
    pass
