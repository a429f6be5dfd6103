# SPDX-License-Identifier: Apache-2.0
"""Leads a trainer and an engine, two processes, step by step: one line of JSON each way. Loads no PyTorch and has no context, so
that the device's memory is that of the two."""
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from row_process import MIB, Failure, finish, in_mib, require, wait_for_turn  # noqa: E402,F401

from phases import Meter, Track, table  # noqa: E402

GIB = 1 << 30
SIMULATED = "lib/simulated" in os.environ.get("LD_LIBRARY_PATH", "")
SMALLEST = (MIB if SIMULATED else 64 * MIB)  # what contexts, libraries' own memory and rounding may add to a difference
FOLDER = pathlib.Path(os.environ["DROP_IN_FOLDER"])
LOWTIDE = os.environ["POLICY_LOWTIDE"]
ANSWERS_WITHIN = 100  # seconds
SHARED_BYTES = 16 * GIB  # holes until somebody writes there


class Refusal(Exception):
    """What a process was told to do was refused, by an error of this name."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name, self.text = name, text


class Player:
    """One of player.py. What is asked is answered in order."""

    def __init__(self, role, kind, environment, shared):
        self.role = role
        environment = {**os.environ, "LOWTIDE_ROLE": role, "POLICY_SHARED": str(shared), **environment}
        self.under_lowtide = "POLICY_BY_HAND" not in environment
        command = [sys.executable, str(HERE / "player.py"), kind]
        if self.under_lowtide:
            command = [LOWTIDE, "run", "--", *command]
        self.process = subprocess.Popen(command, env=environment, text=True, pass_fds=(shared,), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.asked = []
        self.said = None  # the whole last answer

    @property
    def pid(self):
        return self.process.pid  # `lowtide run` becomes the program

    def ask(self, method, *arguments):
        self.asked.append(method)
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        method = self.asked.pop(0)
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWERS_WITHIN)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise Failure(f"the {self.role} did not answer {method} within {ANSWERS_WITHIN} s, or ended: {self.process.poll()}")
        self.said = json.loads(line)
        if "error" in self.said:
            raise Refusal(self.said["error"], self.said["message"])
        return self.said["answer"]

    def do(self, method, *arguments):
        self.ask(method, *arguments)
        return self.answer()

    def refused(self, name, *words):
        """The message with which it refuses; it must be this error."""
        try:
            self.do(*words)
        except Refusal as refusal:
            require(refusal.name == name, f"the {self.role} refuses {words} by {refusal}, not by a {name}")
            return refusal.text
        raise Failure(f"the {self.role} does not refuse {words}")

    def status(self):
        done = subprocess.run([LOWTIDE, "status", str(self.pid), "--json"], capture_output=True, text=True, timeout=30, check=False)
        require(done.returncode == 0, f"lowtide status of the {self.role}: exit {done.returncode}: {done.stdout} {done.stderr}")
        return json.loads(done.stdout)["processes"][0]

    def tag(self, name):
        """What `lowtide status` says of the tag."""
        found = [each for each in self.status()["tags"] if each["tag"] == name]
        require(len(found) == 1, f"the {self.role} has {len(found)} tags {name}")
        return found[0]

    def bytes_of(self, *names):
        """On the device, with what rounding and joined extents take."""
        return sum(each["bytes_resident"] + each["bytes_slack"] for each in map(self.tag, names))

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(60)
        require(code == 0, f"the {self.role} ended with {code}")


class Pair:
    """A trainer and an engine that share a configuration and a file in host memory, for weights."""

    def __init__(self, configuration="", trainer="adamw", engine="engine", **environment):
        if configuration:
            path = FOLDER / f"lowtide{len(list(FOLDER.glob('*.toml')))}.toml"
            path.write_text(configuration)
            environment["LOWTIDE_CONFIG"] = str(path)
        shared = os.memfd_create("weights", 0)
        os.truncate(shared, SHARED_BYTES)
        self.trainer = Player("trainer", trainer, environment, shared)
        self.engine = Player("engine", engine, environment, shared)
        os.close(shared)

    @property
    def players(self):
        return self.trainer, self.engine

    def do(self, *words):
        """Both, at the same time."""
        for player in self.players:
            player.ask(*words)
        return [player.answer() for player in self.players]

    def mode(self, mode):
        self.do("set", "mode", mode)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for player in self.players:
            if kind is None:
                player.end()
            else:
                with contextlib.suppress(ProcessLookupError):
                    player.process.kill()
                player.process.wait(30)


def take_turn(pair, *names):
    """From here on the device is ours; what the processes need before the first step is built. A track for each name."""
    wait_for_turn()
    meter = Meter()
    pair.do("build")
    return [Track(name, pair, meter) for name in names]


def keep_table(title, *tracks):
    """Beside the result, for the runner to show."""
    (FOLDER / "table.md").write_text(table(title, tracks), encoding="utf-8")


def rule_of(status, on, number=None):
    """The line of `lowtide status` for a rule; number 0 is a built-in one."""
    found = [each for each in status["policy"]["rules"] if each["on"] == on and number in (None, each["rule"])]
    require(len(found) == 1, f"{len(found)} rules are about {on!r}: {status['policy']['rules']}")
    return found[0]


def breaches(player):
    """{"resume kv_cache": how often}, and that nothing but counting was done."""
    policy = player.status()["policy"]
    require((policy["refusals"], policy["waits"]) == (0, 0), f"the {player.role} was refused or waited: {policy}")
    return {each["on"]: each["breaches"] for each in policy["rules"] if each["breaches"]}


def close(left, right, share=0.05):
    return abs(left - right) <= share * right + SMALLEST


def main(cases):
    """Runs the case named on the command line, which returns its numbers."""
    try:
        finish("ok", cases[sys.argv[1]]())
    except Exception:  # pylint: disable=broad-except  a row of the table, whatever it was
        traceback.print_exc()
        sys.exit(1)
