# SPDX-License-Identifier: Apache-2.0
"""What LOWTIDE_METRICS writes is what Prometheus reads, by the parser of its own client, which is got from PyPI where it is
not installed; skipped where that cannot be had."""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import venv

import support

SKIPPED = 77
EVERY = {"lowtide_device_used_bytes", "lowtide_device_total_bytes", "lowtide_device_bytes", "lowtide_backup_bytes",
         "lowtide_unmanaged_bytes", "lowtide_slack_bytes", "lowtide_other_processes_bytes", "lowtide_pause_seconds", "lowtide_resume_seconds",
         "lowtide_moved_bytes", "lowtide_refusals", "lowtide_wait_seconds", "lowtide_oom", "lowtide_phases", "lowtide_phase_info",
         "lowtide_trace_dropped_events", "lowtide_trace_overwritten_events"}


def with_parser():
    """A Python that has the parser; None if there is none."""
    has = [sys.executable, "-c", "import prometheus_client"]
    if subprocess.run(has, capture_output=True, check=False).returncode == 0:
        return sys.executable
    folder = pathlib.Path(os.environ["LOWTIDE_TEST_VENV"])
    python = folder / "bin" / "python3"
    if not python.exists():
        venv.create(folder, with_pip=True, symlinks=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "prometheus_client"]
    return python if subprocess.run(install, check=False).returncode == 0 else None


def a_life(device):
    """Blocks, a pause and a resume, memory in no tag, too much of it; then the text is copied while it is there."""
    sys.path.insert(0, str(support.PACKAGE))
    import lowtide  # pylint: disable=import-outside-toplevel
    lowtide.phase("rollout")
    with lowtide.scope("weights"):
        device.allocate(4 * support.MIB)
    device.allocate(3 * support.MIB)
    too_much = ctypes.c_uint64()
    assert device.cuda.cuMemAlloc_v2(ctypes.byref(too_much), ctypes.c_size_t(1 << 40)) == 2
    lowtide.pause("weights")
    folder = pathlib.Path(os.environ["LOWTIDE_TEST_FOLDER"])
    (folder / "parked").write_text((folder / f"{os.getpid()}.prom").read_text())
    lowtide.resume("weights")
    (folder / "resident").write_text((folder / f"{os.getpid()}.prom").read_text())


class Metrics(support.Played):
    def read(self, path):
        """By name, of every sample: labels and value."""
        from prometheus_client.parser import text_string_to_metric_families  # pylint: disable=import-outside-toplevel
        samples, families = {}, set()
        for family in text_string_to_metric_families(path.read_text()):
            self.assertNotIn(family.name, families)
            self.assertTrue(family.documentation)
            families.add(family.name)
            for sample in family.samples:
                self.assertIn("pid", sample.labels)
                labels = {key: value for key, value in sample.labels.items() if key != "pid"}
                samples.setdefault(sample.name, []).append((labels, sample.value))
        self.assertEqual(families, EVERY)
        return samples

    def test_prometheus_reads_what_is_written(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lowtide-metrics-"))
        self.addCleanup(lambda: [each.unlink() for each in folder.iterdir()] and folder.rmdir())
        self.play(a_life, preload="PRELOAD", LOWTIDE_METRICS=f"{folder}/%p.prom", LOWTIDE_TEST_FOLDER=str(folder))
        parked, resident = self.read(folder / "parked"), self.read(folder / "resident")
        tag = {"device": "0", "tag": "weights"}
        self.assertIn(({**tag, "state": "parked"}, 4 * support.MIB), parked["lowtide_device_bytes"])
        self.assertIn(({**tag, "state": "resident"}, 0), parked["lowtide_device_bytes"])
        self.assertIn((tag, 4 * support.MIB), parked["lowtide_backup_bytes"])
        self.assertIn(({**tag, "state": "resident"}, 4 * support.MIB), resident["lowtide_device_bytes"])
        self.assertEqual(resident["lowtide_unmanaged_bytes"], [({"device": "0", "kind": "driver"}, 3 * support.MIB)])
        self.assertEqual(resident["lowtide_oom_total"], [({"device": "0"}, 1)])
        self.assertEqual(resident["lowtide_resume_seconds_count"], [({"tag": "weights"}, 1)])
        self.assertGreater(resident["lowtide_resume_seconds_sum"][0][1], 0)
        self.assertEqual(resident["lowtide_phase_info"], [({"phase": "rollout"}, 1)])
        used, total = resident["lowtide_device_used_bytes"][0][1], resident["lowtide_device_total_bytes"][0][1]
        self.assertGreaterEqual(used, 7 * support.MIB)
        self.assertEqual(total, 1 << 30)
        self.assertEqual(sorted(each.name for each in folder.iterdir()), ["parked", "resident"], "the file went with its process")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        python = with_parser()
        if python is None:
            print("prometheus_client cannot be had")
            sys.exit(SKIPPED)
        if str(python) != sys.executable:
            os.execv(python, [str(python), "-B", *sys.argv])
    support.main(globals())
