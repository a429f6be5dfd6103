# SPDX-License-Identifier: Apache-2.0
"""Tags by rule in a Python program, on the simulated GPU; each case in a process of its own."""
import ctypes
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

from support import MIB, PACKAGE, Played, main, raises

sys.path.insert(0, str(PACKAGE))

import lowtide  # noqa: E402

# What a program imports: functions that reach the driver from modules of a package, and of one that has been installed.
LAYERS = """
import ctypes
CUDA = ctypes.CDLL("libcuda.so.1")
KEEPS_THE_GIL = ctypes.PyDLL("libcuda.so.1")
def _create_weights(size, cuda=CUDA):
    block = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)) == 0
    return block.value
def load(size):
    return _create_weights(size)
def below(depth, size):
    return below(depth - 1, size) if depth else _create_weights(size)
"""


def status():
    said = subprocess.run([f"{PACKAGE}/lowtide/bin/lowtide", "status", str(os.getpid()), "--json"], check=True, text=True,
                          capture_output=True, env={key: value for key, value in os.environ.items() if key != "LD_PRELOAD"})
    return json.loads(said.stdout)["processes"][0]


def origins():
    return [(each["tag"], each["from"], each["rule"], each["blocks"], each["bytes"] // MIB) for each in status()["origins"]]


def untagged():
    return [(each["python"], each["function"], each["allocations"], each["bytes_asked"] // MIB) for each in status()["untagged"]]


def blocks(tag):
    try:
        return lowtide.info(tag).blocks
    except lowtide.InvalidError:
        return 0


def by_module(device):
    from app.lora import layers
    from installed.deep import layers as installed
    layers.load(3 * MIB)
    installed.load(5 * MIB)
    assert (blocks("lora"), blocks("deep")) == (1, 1), status()
    layers.CUDA.cuMemFree_v2(ctypes.c_uint64(layers.load(7 * MIB)))
    device.allocate(2 * MIB)
    assert origins() == [("lora", "rule", 1, 1, 3), ("deep", "rule", 2, 1, 5)], status()
    first = status()["origins"][0]
    assert (first["python"], first["function"], first["library"]) == ("app.lora.layers", "_create_weights", None), first
    assert untagged() == [("support", "call", 1, 2)], status()
    assert status()["python_hidden"] is False


def order_of_rules(device):
    from app.lora import layers
    layers.load(2 * MIB)  # the second allocation of the process counts as such, whatever tags it
    device.allocate(2 * MIB)
    layers.load(64 * MIB)
    device.allocate(64 * MIB)
    lowtide.phase("train")
    device.allocate(2 * MIB)
    with lowtide.scope("own"):
        layers.load(2 * MIB)
    with lowtide.process_scope("loaded"):
        layers.load(2 * MIB)
    lowtide.phase("rollout")
    device.allocate(2 * MIB)
    with raises(lowtide.InvalidError) as caught:
        lowtide.phase("no name")
    assert "no name" in str(caught.exception)
    assert origins() == [("early", "rule", 2, 2, 4), ("big_lora", "rule", 1, 1, 64), ("big", "rule", 3, 1, 64),
                         ("train", "rule", 4, 1, 2), ("own", "scope", None, 1, 2), ("loaded", "scope", None, 1, 2),
                         ("weights", "default", None, 1, 2)], origins()


def threads(device):
    from app.lora import layers

    def inside():
        device.call("cuCtxSetCurrent", device.context)
        layers.load(2 * MIB)

    def outside():
        device.call("cuCtxSetCurrent", device.context)
        device.allocate(2 * MIB)

    for _ in range(8):
        pair = [threading.Thread(target=each) for each in (inside, outside)]
        for thread in pair:
            thread.start()
        layers.below(3, 2 * MIB)
        for thread in pair:
            thread.join()
    assert blocks("lora") == 16, status()
    assert untagged() == [("support", "call", 8, 16)], status()


def with_the_gil(device):
    """One thread allocates while it holds the GIL that others wait for."""
    from app.lora import layers
    done = threading.Event()

    def run():
        while not done.is_set():
            sum(range(1000))

    busy = [threading.Thread(target=run) for _ in range(2)]
    for thread in busy:
        thread.start()
    for _ in range(20):
        layers._create_weights(MIB, layers.KEEPS_THE_GIL)
    done.set()
    for thread in busy:
        thread.join()
    device.allocate(MIB)
    assert blocks("lora") == 20


def generators(_device):
    """Frames that live elsewhere than on the thread's stack."""
    import asyncio
    from app.lora import layers

    async def load():
        await asyncio.sleep(0)
        return layers.load(MIB)

    asyncio.run(load())
    assert [layers.load(MIB) for _ in range(2)] and list(layers.load(MIB) for _ in range(2)) and list(map(layers.load, [MIB]))
    assert blocks("lora") == 6, status()


def subinterpreter(device):
    """From 3.12 on Python says which interpreter the thread is in; before, it shows the frames that led there."""
    from_itself = sys.version_info >= (3, 12)
    interpreters = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    own = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
    interpreters.run_string(own, "from app.lora import layers\nlayers.load(2 << 20)\n")
    interpreters.destroy(own)
    device.allocate(2 * MIB)
    assert blocks("lora") == (1 if from_itself else 0), status()
    assert ("match_test", "subinterpreter", 1, 2) in untagged() or from_itself, untagged()


def shown_to_people(device):
    from app.lora import layers
    layers.load(3 * MIB)
    device.allocate(2 * MIB)
    with lowtide.scope("own"):
        device.allocate(MIB)
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    said = subprocess.run([f"{PACKAGE}/lowtide/bin/lowtide", "status", str(os.getpid())], check=True, text=True,
                          capture_output=True, env=environment).stdout
    lines = [line.split() for line in said.splitlines()]
    assert ["lora", "rule", "1", "1", "3.00", "MiB", "app.lora.layers", "_create_weights"] in lines, said
    assert ["own", "scope", "1", "1.00", "MiB"] in lines, said
    asked = lines[lines.index(["CALLS", "ASKED", "FOR", "PYTHON", "FUNCTION", "LIBRARY"]) + 1]
    assert asked[:5] == ["1", "2.00", "MiB", "support", "call"], said
    assert "not visible" not in said


def deep(device):
    from app.lora import layers
    sys.setrecursionlimit(20000)
    layers.below(5000, 2 * MIB)
    assert blocks("lora") == 1

    def tower(depth):
        return tower(depth - 1) if depth else device.allocate(2 * MIB)

    before = sorted(os.listdir("/proc/self/fd"))
    tower(5000)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert blocks("lora") == 1


def in_a_signal_handler(device):
    from app.lora import layers
    signal.signal(signal.SIGUSR1, lambda *_: layers.load(2 * MIB))
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
        device.allocate(MIB)
    assert blocks("lora") == 20


def without_descriptors(device):
    import resource
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, limits[1]))
    try:
        device.allocate(2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert untagged() == [("support", "call", 1, 2)], untagged()


def forked(device):
    from app.lora import layers
    layers.load(2 * MIB)
    child = os.fork()
    if child == 0:
        lowtide.phase("train")
        os._exit(0 if layers.CUDA.cuMemFree_v2(ctypes.c_uint64(1)) != 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (blocks("lora"), device.free_bytes() > 0) == (1, True)


def library_rules(_device):
    from app.lora import layers
    layers.load(2 * MIB)
    assert origins() == [("by_ctypes", "rule", 1, 1, 2)], status()
    assert status()["origins"][0]["library"].startswith("_ctypes."), status()
    assert status()["origins"][0]["python"] is None, status()


def unmanaged(_device):
    """The caller is one whose memory the default tag leaves alone: a rule that names it wins."""
    from app.lora import layers
    layers.load(2 * MIB)
    layers.below(1, 2 * MIB)
    assert origins() == [("named", "rule", 1, 1, 2)], status()
    assert untagged() == [("app.lora.layers", "_create_weights", 1, 2)], status()


def many_callers(_device):
    from app.lora import layers
    places = {}
    for number in range(100):
        exec(f"def f{number}(size):\n  return layers.CUDA.cuMemAlloc_v2(P, S(size))",  # pylint: disable=exec-used
             {"layers": layers, "P": ctypes.byref(ctypes.c_uint64()), "S": ctypes.c_size_t}, places)
        places[f"f{number}"]((1 + number % 50) * MIB // 50)
    places["f0"](128 * MIB)
    shown = untagged()
    assert len(shown) == 33 and shown[0][:2] == ("<string>", "f0"), shown
    assert sum(each[2] for each in shown) == 101 and shown[-1][0] is None, shown


def known_pythons():
    """Every CPython from 3.9 to 3.14 that is on PATH or where pyenv puts them, by its version."""
    found = {}
    for path in [sys.executable, "/usr/bin/python3", *glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")),
                 *(shutil.which(f"python3.{minor}") or "" for minor in range(9, 15))]:
        said = path and subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2], sys.implementation.name)"],
                                       text=True, capture_output=True, check=False).stdout.split()
        if said and said[2] == "cpython" and 9 <= int(said[1]) <= 14:
            found.setdefault(f"3.{said[1]}", path)
    return found


RULES = """
[[match]]
tag = "lora"
python = "app.lora.*"
[[match]]
tag = "deep"
python = "*/installed/deep/*"
function = "_create_*"
"""


class Rules(Played):
    def play_with(self, case, rules=RULES, preload="PRELOAD", **options):
        folder = pathlib.Path(self.make_folder())
        for place in ("app/lora", "site-packages/installed/deep"):
            (folder / place).mkdir(parents=True)
            (folder / place / "layers.py").write_text(LAYERS, encoding="utf-8")
        for place in ("app", "app/lora"):
            (folder / place / "__init__.py").write_text("", encoding="utf-8")
        (folder / "lowtide.toml").write_text(rules, encoding="utf-8")
        return self.play(case, preload=preload, LOWTIDE_CONFIG=str(folder / "lowtide.toml"),
                         PYTHONPATH=f"{folder}:{folder}/site-packages", **options)

    def test_a_rule_tags_what_a_module_allocates_and_nothing_else(self):
        self.assertEqual(self.play_with(by_module), "")

    def test_every_python_shows_its_frames(self):
        for version, path in known_pythons().items():
            for case in (by_module, threads, with_the_gil, generators, deep, forked, subinterpreter):
                with self.subTest(version=version, case=case.__name__):
                    self.play_with(case, python=path)

    def test_status_shows_people_who_tagged_what(self):
        self.play_with(shown_to_people)

    def test_the_first_rule_whose_conditions_all_hold_wins_over_the_default_tag_and_a_scope_over_it(self):
        self.play_with(order_of_rules, """
[[match]]
tag = "big_lora"
python = "app.lora.layers"
size = "64MiB.."
[[match]]
tag = "early"
order = "..2"
[[match]]
tag = "big"
size = "64MiB..1GiB"
[[match]]
tag = "train"
phase = "train"
""", LOWTIDE_DEFAULT_TAG="weights")

    def test_an_allocation_in_a_signal_handler_is_matched_too(self):
        self.play_with(in_a_signal_handler)

    def test_a_process_without_descriptors_left_has_callers_all_the_same(self):
        self.play_with(without_descriptors)

    def test_a_library_rule_needs_no_python(self):
        self.play_with(library_rules, "[[match]]\ntag = 'by_ctypes'\nlibrary = '_ctypes.*'\n")

    def test_an_explicit_rule_wins_over_unmanaged_callers(self):
        self.play_with(unmanaged, "unmanaged.callers = ['libffi*']\n[[match]]\ntag = 'named'\nfunction = 'load'\n",
                       LOWTIDE_DEFAULT_TAG="weights")

    def test_the_library_that_asks_is_not_ours_under_torch_memory_savers_name(self):
        folder = pathlib.Path(self.make_folder())
        shutil.copy(os.environ["LOWTIDE_TEST_STATE"], folder)
        ours = shutil.copy(os.environ["LOWTIDE_TEST_PRELOAD"], folder / "torch_memory_saver_hook_mode_preload.so")
        self.play_with(unmanaged, "unmanaged.callers = ['libffi*']\n[[match]]\ntag = 'named'\nfunction = 'load'\n", str(ours),
                       LOWTIDE_DEFAULT_TAG="weights")

    def test_only_the_largest_untagged_callers_are_kept(self):
        self.play_with(many_callers)


if __name__ == "__main__":
    main(globals())
