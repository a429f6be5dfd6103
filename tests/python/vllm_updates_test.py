# SPDX-License-Identifier: Apache-2.0
"""What vLLM loads into its weights makes them content again, over stand-ins of four versions, on the simulated GPU; each case in
a process of its own."""
import sys

from support import MIB, Played, main, raises
from vllm_engine import VERSIONS, Engine, forget_all_tensors, parked

if len(sys.argv) > 1:  # a case is played
    from vllm_engine import lowtide, torch

SIZE = 4 * MIB


def content(word, size=SIZE):
    return word.ljust(size, b"+")


def awake_without_weights(device):
    """An engine whose weights woke up from level 2; the KV cache is asleep."""
    engine = Engine(device)
    engine.worker.sleep(level=2)
    engine.worker.wake_up(["weights"])
    assert weights() == ("stale", 0)
    return engine


def weights():
    return lowtide.info("weights").freshness, lowtide.info("weights").version


def refuses_kv_cache(engine, *words):
    with raises(lowtide.RefusedError) as caught:
        engine.worker.wake_up(["kv_cache"])
    for word in words:
        assert word in str(caught.exception), caught.exception
    assert parked("weights", "kv_cache") == [False, True]


def reloaded(device):
    engine = awake_without_weights(device)
    refuses_kv_cache(engine, "resume kv_cache", "weights", "STALE")
    for version in (1, 2):
        engine.worker.model_runner.checkpoint = [(0, content(b"of version %d" % version))]
        engine.worker.reload_weights()
        assert weights() == ("valid", version)
        engine.worker.wake_up(["kv_cache"])
        engine.expect(parameter=b"of version %d" % version, buffer=b"buffer", table=b"table")
        engine.worker.sleep(level=2)
        engine.worker.wake_up(["weights"])
    engine.worker.sleep(level=2)
    with raises(lowtide.RefusedError) as caught:
        engine.worker.wake_up()  # of all, without a place for a reload
    assert "STALE" in str(caught.exception) and parked("weights", "kv_cache") == [True, True]


def reload_fails(device):
    engine = awake_without_weights(device)
    engine.worker.model_runner.checkpoint = [(7, b"there is no such parameter")]
    with raises(IndexError):
        engine.worker.reload_weights()
    assert weights() == ("stale", 0)
    refuses_kv_cache(engine, "STALE")
    engine.worker.sleep(level=2)  # no update is in the way


def buckets(device):
    """As an extension of the worker does it that a framework brings."""
    engine = awake_without_weights(device)
    model = engine.worker.model_runner.model
    for last in (b"again", b"loaded"):
        model.load_weights(weights=[(0, content(last, SIZE // 2))])
        assert weights() == ("syncing", 0)
        model.load_weights(weights=[(0, content(last))])
    engine.worker.wake_up(["weights"])  # again: this ends no update
    assert weights() == ("syncing", 0)
    engine.worker.wake_up(["kv_cache"])
    assert weights() == ("valid", 1)
    engine.expect(parameter=b"loaded", buffer=b"buffer")
    model.load_weights(weights=[(0, content(b"while it computes"))])
    assert weights() == ("valid", 1)


def bucket_fails(device):
    engine = awake_without_weights(device)
    with raises(IndexError):
        engine.worker.model_runner.model.load_weights([(7, b"there is no such parameter")])
    assert weights() == ("stale", 0)
    engine.worker.model_runner.model.load_weights([(0, content(b"loaded"))])
    engine.worker.wake_up(["kv_cache"])
    assert weights() == ("valid", 1)


def bucket_left_out(device):
    engine = awake_without_weights(device)
    engine.worker.model_runner.model.load_weights([(0, content(b"loaded", MIB))])
    refuses_kv_cache(engine, f"{SIZE - MIB} bytes")
    assert weights() == ("stale", 0)
    engine.worker.model_runner.model.load_weights([(0, content(b"loaded"))])
    engine.worker.wake_up(["kv_cache"])
    assert weights() == ("valid", 1)


def transferred(device):
    engine = awake_without_weights(device)
    worker = engine.worker
    worker.start_weight_update()
    with raises(AssertionError):
        worker.start_weight_update()  # the first one goes on
    for word in (b"first", b"last"):
        worker.update_weights([(0, content(word))])
        assert weights() == ("syncing", 0)
    refuses_kv_cache(engine, "SYNCING")
    worker.finish_weight_update()
    assert weights() == ("valid", 1)
    worker.start_weight_update()  # of weights that are content
    with raises(IndexError):
        worker.update_weights([(7, b"")])
    assert weights() == ("stale", 1)
    refuses_kv_cache(engine, "STALE")
    worker.start_weight_update()
    worker.update_weights([(0, content(b"transferred"))])
    worker.finish_weight_update()
    worker.wake_up(["kv_cache"])
    assert weights() == ("valid", 2)
    engine.expect(parameter=b"transferred")
    worker.start_weight_update()
    worker.sleep(level=2)  # what is dropped need not be whole
    assert parked("weights", "kv_cache") == [True, True]


def for_the_draft_model(device):
    """A session that was begun by another call: what it loads are not these weights."""
    engine = awake_without_weights(device)
    engine.worker._weight_update_active = True
    engine.worker.finish_weight_update()
    assert weights() == ("stale", 0)
    engine.worker.model_runner.model.load_weights([(0, content(b"loaded", MIB))])
    engine.worker.finish_weight_update()
    assert weights() == ("syncing", 0)


def of_a_framework(device):
    """Which tells Lowtide by itself."""
    engine = awake_without_weights(device)
    with lowtide.begin_update("weights", 40):
        engine.worker.model_runner.checkpoint = [(0, content(b"loaded"))]
        engine.worker.reload_weights()
        assert weights() == ("syncing", 0)
    assert weights() == ("valid", 40)
    engine.worker.wake_up(["kv_cache"])


def loads_without_an_end(device):
    engine = Engine(device)
    model = engine.worker.model_runner.model
    for version, end in enumerate((lambda: engine.worker.execute_model(None), lambda: engine.worker.sleep(level=1),
                                   lambda: engine.worker.sleep(level=2)), 1):
        engine.worker.sleep(level=2)
        engine.worker.wake_up()  # all, and no rule is enforced
        model.load_weights([(0, content(b"loaded"))])
        assert weights() == ("syncing", version - 1)
        end()
        assert lowtide.info("weights").version == version
        engine.worker.wake_up()
        if version < 3:
            engine.expect(parameter=b"loaded", buffer=b"buffer")
    assert parked("weights", "kv_cache") == [False, False]


def loaded_past_lowtide(device):
    """Nobody says so, and the bytes are kept all the same."""
    engine = Engine(device)
    engine.worker.reload_weights()  # the runtime has heard of updates
    assert weights() == ("valid", 1)
    for computes in (True, False):
        engine.worker.sleep(level=2)
        engine.worker.wake_up()
        engine.parameter.copy_(torch.Tensor(None, SIZE, content(b"copied")))
        if computes:
            engine.worker.execute_model(None)
            lowtide.pause("weights")
            lowtide.resume("weights")
        else:
            engine.worker.sleep(level=1)
            engine.worker.wake_up()
        engine.expect(parameter=b"copied", buffer=b"buffer")
        assert weights()[0] == "valid"


def next_engine(device):
    """The first one goes in the middle of its update."""
    engine = awake_without_weights(device)
    engine.worker.model_runner.model.load_weights([(0, content(b"loaded", MIB))])
    forget_all_tensors()
    second = Engine(device)
    lowtide.pause("weights")
    lowtide.resume("weights")
    second.worker.sleep()
    second.worker.wake_up()
    second.expect(parameter=b"parameter", buffer=b"buffer")


class VllmUpdates(Played):

    def each(self, case, configuration="", versions=VERSIONS):
        for version in versions:
            with self.subTest(version):
                self.play(case, preload="PRELOAD", LOWTIDE_TEST_VLLM=version, LOWTIDE_CONF=configuration)

    def test_a_reload_makes_dropped_weights_content_and_without_it_the_kv_cache_is_refused(self):
        self.each(reloaded, "mode:enforce")

    def test_a_reload_that_fails_leaves_them_stale(self):
        self.each(reload_fails, "mode:enforce")

    def test_buckets_are_one_update_until_the_kv_cache_wakes_up(self):
        self.each(buckets, "mode:enforce")

    def test_a_bucket_that_fails_leaves_them_stale(self):
        self.each(bucket_fails, "mode:enforce")

    def test_a_bucket_that_is_left_out_keeps_the_kv_cache_asleep(self):
        self.each(bucket_left_out, "mode:enforce,tag.weights.coverage:enforce")

    def test_a_transfer_is_an_update_from_its_start_to_its_end(self):
        self.each(transferred, "mode:enforce", VERSIONS[1:])

    def test_a_transfer_to_the_draft_model_makes_no_other_weights_content(self):
        self.each(for_the_draft_model, "mode:enforce", VERSIONS[1:])

    def test_an_update_that_a_framework_tells_of_stays_its_own(self):
        self.each(of_a_framework, "mode:enforce")

    def test_loads_without_an_end_stand_in_no_way(self):
        for mode in ("observe", "off"):
            self.each(loads_without_an_end, f"mode:{mode}")

    def test_what_is_loaded_past_lowtide_is_kept(self):
        for mode in ("observe", "off"):
            self.each(loaded_past_lowtide, f"mode:{mode}")

    def test_an_engine_that_goes_in_the_middle_of_its_update_leaves_nothing_to_the_next(self):
        self.each(next_engine)


if __name__ == "__main__":
    main(globals())
