# SPDX-License-Identifier: Apache-2.0
"""A program that answers each line of its input with a line of JSON: bench_copies, or peers_worker.py."""

import collections
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

ANSWER_SECONDS = 150


class Failed(Exception):
    """Why a row has no figure."""


def say(text):
    print(f"run_copies: {text}", file=sys.stderr, flush=True)


class Program:
    """For a `with` block. Ends the process, by its PID alone, when the block is left."""

    def __init__(self, command, environment, log, name):
        self.name = name
        self.log_ = pathlib.Path(log)
        with open(self.log_, "wb") as stderr:
            self.process = subprocess.Popen(
                [str(word) for word in command], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=stderr, text=True, bufsize=1)  # fmt: skip
        self.lines_ = queue.Queue()
        threading.Thread(target=self.read_, daemon=True).start()

    def read_(self):
        for line in self.process.stdout:
            self.lines_.put(line)
        self.lines_.put(None)

    def send(self, *words):
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has ended; `receive` says how

    def receive(self, what="a command", seconds=ANSWER_SECONDS):
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self.lines_.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Failed(f"{self.name}: no answer to {what} within {seconds} s{self.last_words()}") from None
            if line is None:
                raise Failed(f"{self.name} ended with {self.ended_()} at {what}{self.last_words()}")
            if line.startswith("{"):
                break
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}{self.last_words()}")
        return answer

    def ask(self, *words, seconds=ANSWER_SECONDS):
        self.send(*words)
        return self.receive(" ".join(str(word) for word in words), seconds)

    def ended_(self):
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "its output closed"

    def last_words(self):
        lines = self.log_.read_text(errors="replace").strip().splitlines()
        return f" [stderr: {' / '.join(collections.deque(lines, 3))[-500:]}]" if lines else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Programs:
    """Starts the programs of one run, each in the environment that it needs."""

    def __init__(self, options, folder):
        self.options_ = options
        self.folder_ = pathlib.Path(folder)
        self.count_ = 0
        self.base_ = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("LOWTIDE_", "TMS_", "PYTORCH_")) and key != "LD_PRELOAD"
        }
        for name in ("run", "device", "tms"):
            (self.folder_ / name).mkdir(mode=0o700)
        self.base_["LOWTIDE_RUNTIME_DIR"] = str(self.folder_ / "run")
        if options.simulated:
            self.base_ |= {
                "LD_LIBRARY_PATH": str(options.build / "lib" / "simulated"),
                "LOWTIDE_SIM_DIR": str(self.folder_ / "device"),
                "LOWTIDE_SIM_MEMORY": "8G",
            }
        self.tms_ = None

    def start_(self, command, environment, name):
        self.count_ += 1
        return Program(command, environment, self.folder_ / f"stderr.{self.count_}", name)

    @property
    def worker_(self):
        return self.options_.build / "tests" / "bench_copies"

    def bare(self):
        return self.start_([self.worker_], self.base_, "bench_copies without Lowtide")

    def preloaded_(self):
        return self.base_ | {"LD_PRELOAD": str(self.options_.build / "lib" / "liblowtide_preload.so")}

    def lowtide(self):
        program = self.start_([self.worker_], self.preloaded_(), "bench_copies")
        for key, value in [("tag.weights.pause", "offload"), ("tag.kv_cache.pause", "discard"), *self.options_.set]:
            program.ask("set", key, value)
        return program

    def command(self, *words):
        """(seconds, what it said) of a verb of the command."""
        start = time.monotonic()
        done = subprocess.run(
            [str(self.options_.build / "bin" / "lowtide"), *words], env=self.base_, capture_output=True, text=True,
            timeout=ANSWER_SECONDS, stdin=subprocess.DEVNULL)  # fmt: skip
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise Failed(f"lowtide {' '.join(words)}: exit {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
        return seconds, json.loads(done.stdout)

    def under_command(self):
        command = [self.options_.build / "bin" / "lowtide", "run", "--tag", "weights", "--", self.worker_]
        return self.start_(command, self.base_, "bench_copies under lowtide run")

    def python_(self, engine, environment):
        script = pathlib.Path(__file__).resolve().parent / "peers_worker.py"
        environment = environment | {
            "BENCH_LOWTIDE": str(self.options_.build / "lib" / "liblowtide.so"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",  # the modules beside the script are none of PyTorch's
        }
        program = self.start_([self.options_.python, "-u", script, engine], environment, f"PyTorch with {engine}")
        program.ask("hello")
        return program

    def torch(self, engine):
        """peers_worker.py as `engine`: lowtide, vllm, tms or tms-retained."""
        if engine == "lowtide":
            return self.python_(engine, self.preloaded_())
        if engine == "vllm":
            return self.python_(engine, self.base_)
        if self.tms_ is None:
            self.tms_ = self.tms_environment_()
        return self.python_(engine, self.tms_)

    def tms_environment_(self):
        """The wheel unpacked, preloaded as its configure_subprocess() does. Its library names the CUDA runtime, which
        must be found before any Python runs."""
        wheel = self.options_.tms_wheel
        if wheel is None or not wheel.exists():
            raise Failed(f"no wheel of torch_memory_saver at {wheel}: --tms-wheel")
        folder = self.folder_ / "tms"
        subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder)], check=True)
        major, libraries = cuda_runtime(self.options_.python)
        found = sorted(folder.glob(f"torch_memory_saver_hook_mode_preload_cu{major}.*so"))
        if len(found) != 1:
            raise Failed(f"the wheel has {len(found)} libraries to preload for CUDA {major}")
        paths = [*libraries, *filter(None, [self.base_.get("LD_LIBRARY_PATH")])]
        return self.base_ | {
            "LD_PRELOAD": str(found[0]),
            "PYTHONPATH": ":".join(filter(None, [str(folder), self.base_.get("PYTHONPATH")])),
            "LD_LIBRARY_PATH": ":".join(paths),
        }


def cuda_runtime(python):
    """CUDA's major version by PyTorch, and the folders that hold that runtime's library."""
    code = (
        "import importlib.util, pathlib, re, sys\n"
        "spec = importlib.util.find_spec('torch')\n"
        "sys.exit('no torch') if spec is None else None\n"
        "torch = pathlib.Path(spec.origin).parent\n"
        "cuda = re.search(r'^cuda\\b[^=]*= *.(\\d+)', (torch / 'version.py').read_text(), re.M)\n"
        "print(torch.parent)\n"
        "print(cuda.group(1))\n"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{python} has no PyTorch with CUDA: {done.stderr.strip()[-200:]}")
    site, major = done.stdout.split("\n")[:2]
    name = f"libcudart.so.{major}"
    found = list(pathlib.Path(site).glob(f"nvidia/*/lib/{name}*")) + list(pathlib.Path(site).glob(f"torch/lib/{name}*"))
    for pattern in (f"cuda*/lib64/{name}", f"cuda*/targets/*/lib/{name}"):
        found += list(pathlib.Path("/usr/local").glob(pattern))
    return major, list(dict.fromkeys(str(path.parent) for path in found))
