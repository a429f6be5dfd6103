# SPDX-License-Identifier: Apache-2.0
"""kernels.py FOLDER: settings of vLLM's LoRA kernels, with which outputs are repeatable."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from random_llama import HIDDEN, RANK  # noqa: E402  it lies one folder above


def make_kernel_settings(folder):
    """vLLM's kernel for the first half of an adapter adds its parts in any order, and greedy outputs differ from run to run: one
    part each. In the shape of its tuned settings: adapters, slices, rows, columns, rank."""
    import torch
    settings = {"block_m": 32, "block_n": 16, "block_k": 256, "split_k": 1, "num_warps": 4, "num_ctas": 1, "group_size_m": 8,
                "num_stages": 2, "max_nreg": None}
    by_shape = {"1": {str(HIDDEN): {str(RANK): settings}}}
    folder.mkdir()
    name = torch.cuda.get_device_name().replace(" ", "_").replace("-", "_")
    (folder / f"{name}_SHRINK.json").write_text(json.dumps({"1": {slices: by_shape for slices in "123"}}))


if __name__ == "__main__":
    make_kernel_settings(pathlib.Path(sys.argv[1]))
