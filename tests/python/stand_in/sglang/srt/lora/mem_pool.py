# SPDX-License-Identifier: Apache-2.0
"""SGLang's slots of LoRA adapters: two buffers of 4 MiB."""
import torch


class LoRAMemoryPool:
    def __init__(self, base_model):
        self.A_buffer, self.B_buffer = {}, {}
        self.init_buffers(base_model)

    def init_buffers(self, base_model):
        for buffer in (self.A_buffer, self.B_buffer):
            buffer[base_model] = torch.allocate(4 << 20)
