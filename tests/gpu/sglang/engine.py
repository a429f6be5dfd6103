# SPDX-License-Identifier: Apache-2.0
"""An engine of SGLang's over the random model, what it answers, and how its memory is released and resumed."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine_case import FOLDER, GIB, PROMPTS, of_sense, others, require, timed  # noqa: E402  it lies one folder above

# Triton's attention and PyTorch's sampling need no package beside SGLang. One request at a time is the same batches every time.
SETTINGS = {"model_path": str(FOLDER / "model"), "skip_tokenizer_init": True, "dtype": "bfloat16", "context_length": 512,
            "mem_fraction_static": 0.12, "max_running_requests": 8, "random_seed": 0, "disable_radix_cache": True,
            "attention_backend": "triton", "sampling_backend": "pytorch", "grammar_backend": "none",
            "cuda_graph_bs_decode": [1, 2, 4, 8], "disable_prefill_cuda_graph": True, "enable_memory_saver": True, "log_level": "info"}
SAMPLING = {"temperature": 0.0, "max_new_tokens": 24, "ignore_eos": True}


class Watched:
    """An engine, and the device as another process sees it."""

    def __init__(self, **options):
        from sglang.srt.entrypoints.engine import Engine
        self.other = others()
        before = self.free()
        self.llm = Engine(**{**SETTINGS, **options})
        self.expected = self.answers()
        self.held = before - self.free()

    def free(self):
        return self.other.free()

    def answers(self, adapter=None):
        """The tokens of each prompt, decoded greedily; the scheduler is idle afterwards."""
        found = [self.llm.generate(input_ids=tokens, sampling_params=SAMPLING, lora_path=adapter)["output_ids"] for tokens in PROMPTS]
        self.be_idle()
        return of_sense(found)

    def same_answers(self, when):
        found = self.answers()
        require(found == self.expected, f"other outputs {when}: {found} and not {self.expected}")

    def be_idle(self):
        """SGLang ends its scheduler when it is told to release anything with a request under way, as the last may still be."""
        end = time.monotonic() + 20
        while not self.llm.flush_cache().success:
            require(time.monotonic() < end, "the scheduler is not idle after 20 s")
            time.sleep(0.02)

    def release(self, *tags):
        """Seconds. All tags, if none is named."""
        return timed(lambda: self.llm.release_memory_occupation(list(tags) or None))

    def resume(self, *tags):
        return timed(lambda: self.llm.resume_memory_occupation(list(tags) or None))

    def cycle(self):
        """The numbers of one release and resume of everything. Another process writes to the memory in between."""
        before = self.free()
        released = self.release()
        freed = self.free() - before
        self.other.ask(f"fill {self.free() - 2 * GIB}")
        self.other.ask("release")
        return {"release": released, "resume": self.resume(), "freed": freed}

    def load_weights(self):
        done = self.llm.update_weights_from_disk(str(FOLDER / "model"))
        require(done[0], f"update_weights_from_disk: {done[1]}")

    def first_weights(self, name="lm_head.weight"):
        """Some numbers of a parameter, as the scheduler reads them."""
        return self.llm.get_weights_by_name(name)
