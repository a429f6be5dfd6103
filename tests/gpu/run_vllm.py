#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays what vLLM's users do with a real vLLM under `lowtide run`, beside vLLM's own allocator.

The cases in vllm/ are a process each. The model is a Llama with random weights, made here. Lowtide comes from its wheel, so
that vLLM finds the plug-in as it would after `pip install`. Prints one table; exits 1 if a row fails. Needs a GPU that
nothing else uses (two for two_ranks) and a Python with vLLM."""

import subprocess

import engine_rows

WAYS = {"own": "vLLM's own allocator", "lowtide": "under `lowtide run`", "backend": "the same, sleep-mode backend `lowtide`"}
CASES = [
    ("levels", "own"), ("levels", "lowtide"), ("levels", "backend"), ("tags_one_by_one", "lowtide"),
    ("buffers_survive_level_2", "lowtide"), ("no_room", "lowtide"), ("adapters", "lowtide"), ("adapters_on_the_device", "own"),
    ("adapters_on_the_device", "lowtide"), ("without_sleep_mode", "lowtide"), ("server", "lowtide"), ("two_ranks", "lowtide"),
]  # fmt: skip
LIMIT_SECONDS = 240


class Ground(engine_rows.Ground):
    own_way = "own"

    def settings(self, way):
        settings = {"VLLM_TUNED_CONFIG_FOLDER": str(self.root / "kernels"), "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
        return {**settings, "CASE_BACKEND": "lowtide"} if way == "backend" else settings

    def command(self, case, way):
        command = [self.options.python, str(engine_rows.HERE / "vllm" / "cases.py"), case]
        return command if way == "own" else [str(self.lowtide), "run", "--", *command]

    def make_model(self):
        super().make_model()
        subprocess.run([self.options.python, str(engine_rows.HERE / "vllm" / "kernels.py"), str(self.root / "kernels")], check=True)


def faster(rows):
    """First sleep at level 1: vLLM's own seconds over Lowtide's."""
    times = {row.way: row.numbers["level 1, first"]["sleep"] for row in rows if row.ok and row.case == "levels"}
    return None if len(times) < 2 or "own" not in times else times["own"] / max(times[way] for way in times if way != "own")


def main():
    options = engine_rows.parser(__doc__, "vLLM", WAYS).parse_args()
    rows, lines = engine_rows.play_all(Ground, engine_rows.chosen(CASES, WAYS, options), WAYS, options, LIMIT_SECONDS)
    ratio = faster(rows)
    if ratio is not None:
        lines += ["", f"The first sleep at level 1 is {ratio:.1f} times as fast as with vLLM's own allocator (goal: 5)."]
    engine_rows.finish(lines, options, all(row.ok for row in rows) and (ratio is None or ratio >= 5))


if __name__ == "__main__":
    main()
