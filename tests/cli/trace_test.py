# SPDX-License-Identifier: Apache-2.0
"""lowtide trace report, log and diff over traces of one and of several processes."""
import json
import os
import random
import unittest

import trace_file
from support import CommandTest, NOT_FOUND, OK, PERMISSION, USAGE
from trace_file import DRIVER, HANDLE, HOST_PINNED, NO_DEVICE, RUNTIME, TraceFile

GIB = 1 << 30
BASE = 0x7F0000000000


def training(pid=4711, device=0, weights=14, cache=38, declared=True, steps=4):
    """A trainer and an engine in one process: each step a rollout, and a training with all tags parked."""
    trace = TraceFile(pid=pid)
    trace.device(device, 141 * GIB)
    loaded = trace.stack(("main", "/x/train.py", 10), ("load", "/x/model.py", 42))
    trace.alloc(0.1, BASE, weights * GIB, "weights", device=device, stack=loaded)
    trace.alloc(0.2, BASE + 100 * GIB, cache * GIB, "kv_cache", device=device)
    trace.alloc(0.3, BASE + 200 * GIB, GIB, kind=HANDLE, device=device)
    trace.sample(0.4, (weights + cache + 5) * GIB, 141 * GIB,
                 [("weights", weights * GIB, 0, 0), ("kv_cache", cache * GIB, 0, 0)], [(HANDLE, GIB)], GIB, device)
    for step in range(1, steps + 1):
        time = 10.0 * step
        if declared:
            trace.event("phase", time, "rollout", value=2 * step - 1, device=NO_DEVICE)
        if step == 3:
            trace.alloc(time + 1, BASE + 300 * GIB, 2 * GIB, kind=DRIVER, device=device)
            trace.event("free", time + 2, address=BASE + 300 * GIB, device=device, kind=DRIVER)
        if declared:
            trace.event("phase", time + 4, "train", value=2 * step, device=NO_DEVICE)
        trace.event("pause_begin", time + 4.1, device=NO_DEVICE)
        trace.event("pause_end", time + 4.5, size=weights * GIB, value=cache * GIB, device=NO_DEVICE)
        trace.sample(time + 4.6, 5 * GIB, 141 * GIB, [("weights", 0, weights * GIB, weights * GIB), ("kv_cache", 0, cache * GIB, 0)],
                     [(HANDLE, GIB)], GIB, device)
        trace.event("resume_begin", time + 8.5, device=NO_DEVICE)
        trace.event("wait", time + 8.8, kind=1, value=300_000_000, device=device)
        trace.event("resume_end", time + 9, size=weights * GIB, value=cache * GIB, device=NO_DEVICE)
    return trace


class TraceTest(CommandTest):
    def file(self, name, trace):
        return trace.write(os.path.join(self.folder, name))

    def report(self, *files):
        result = self.lowtide("trace", "report", "--json", *files)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        return json.loads(result.stdout)

    def phases(self, *files):
        return {row["phase"]: row for row in self.report(*files)["tables"][0]["phases"]}

    @staticmethod
    def peaks(row):
        return {peak["name"]: peak["bytes"] / GIB for peak in row["peaks"] if peak["bytes"]}


class Report(TraceTest):
    def test_peaks_of_tags_and_of_what_is_in_none_make_up_what_is_used(self):
        rows = self.phases(self.file("a", training()))
        self.assertEqual(self.peaks(rows["start"]),
                         {"weights": 14, "kv_cache": 38, "unmanaged handle": 1, "other processes": 1, "unattributed": 3})
        self.assertEqual(rows["start"]["used"], 57 * GIB)

    def test_a_phase_that_has_a_peak_once_has_it_in_the_table(self):
        rows = self.phases(self.file("a", training()))
        self.assertEqual((rows["rollout"]["runs"], rows["rollout"]["used"]), (4, 59 * GIB))
        self.assertEqual((rows["train"]["backups"], rows["train"]["waited_seconds"]), (14 * GIB, 1.2))
        self.assertAlmostEqual(rows["rollout"]["seconds"], 4.0)

    def test_only_the_steps_that_are_asked_for_count(self):
        file = self.file("a", training())
        peak = lambda steps: json.loads(self.lowtide("trace", "report", "--json", "--steps", steps, file).stdout)["tables"][0]["phases"]
        self.assertEqual([row["used"] // GIB for row in peak("1-2")], [57, 57, 57])
        self.assertEqual([(row["phase"], row["used"] // GIB) for row in peak("3")], [("rollout", 59), ("train", 57)])

    def test_a_phase_that_not_every_step_has_belongs_to_the_step_that_has_it(self):
        trace = TraceFile()
        trace.alloc(0.1, BASE, GIB, "weights")
        for epoch, name in enumerate(("load", "rollout", "train", "rollout", "train", "validate", "rollout", "train"), 1):
            trace.event("phase", epoch, name, value=epoch, device=NO_DEVICE)
        file = self.file("a", trace)
        names = lambda steps: [row["phase"] for row in json.loads(
            self.lowtide("trace", "report", "--json", "--steps", steps, file).stdout)["tables"][0]["phases"]]
        self.assertEqual(names("1"), ["start", "load", "rollout", "train"])
        self.assertEqual(names("2"), ["rollout", "train", "validate"])
        self.assertEqual(names("3"), ["rollout", "train"])

    def test_what_a_resume_has_mapped_when_a_sample_was_taken_counts_once(self):
        trace = TraceFile()
        trace.alloc(1, BASE, 4 * GIB, "weights")
        trace.sample(1.5, 5 * GIB, 141 * GIB, [("weights", 4 * GIB, 0, 0)])
        trace.event("pause_begin", 2, device=NO_DEVICE)
        trace.event("pause_end", 3, size=4 * GIB, device=NO_DEVICE)
        trace.sample(3, GIB, 141 * GIB, [("weights", 0, 4 * GIB, 4 * GIB)])
        trace.event("resume_begin", 4, device=NO_DEVICE)
        trace.sample(4.5, 4 * GIB, 141 * GIB, [("weights", 3 * GIB, GIB, 0)])
        trace.event("resume_end", 5, size=4 * GIB, device=NO_DEVICE)
        trace.sample(6, 5 * GIB, 141 * GIB, [("weights", 4 * GIB, 0, 0)])
        rows = self.phases(self.file("a", trace))
        self.assertEqual({name: row["used"] / GIB for name, row in rows.items()},
                         {"start": 5, "pause all": 5, "all parked": 1, "resume all": 5, "all resident": 5})

    def test_rows_of_a_sample_that_are_more_than_what_is_used_are_cut_those_of_others_first(self):
        trace = TraceFile()
        trace.alloc(1, BASE, 4 * GIB, "weights")
        trace.sample(2, 6 * GIB, 141 * GIB, [("weights", 4 * GIB, 0, 0)], [(HANDLE, GIB)], 3 * GIB)
        row = self.phases(self.file("a", trace))["start"]
        self.assertEqual((row["used"] / GIB, self.peaks(row)), (6, {"weights": 4, "unmanaged handle": 1, "other processes": 1}))

    def test_what_others_hold_in_no_tag_is_theirs_where_their_traces_say_so(self):
        def process(pid, weights, untagged, told, *times):
            trace = TraceFile(pid=pid)
            trace.device(0, 141 * GIB)
            trace.alloc(0.1, BASE, weights * GIB, "weights")
            trace.alloc(0.1, BASE + 100 * GIB, untagged * GIB)
            for time in times:
                trace.sample(time, 20 * GIB, 141 * GIB, [("weights", weights * GIB, 0, 0)], [(RUNTIME, untagged * GIB)], told * GIB)
            return self.file(str(pid), trace)

        mine = process(1, 3, 1, 5, 1)
        self.assertEqual(self.peaks(self.phases(mine)["start"]),
                         {"weights": 3, "unmanaged runtime": 1, "other processes": 5, "unattributed": 11})
        theirs = process(2, 5, 7, 3, 0.9)
        self.assertEqual(self.peaks(self.phases(mine, theirs)["start"]),
                         {"weights": 3, "unmanaged runtime": 1, "other processes": 12, "unattributed": 4})
        self.assertEqual(self.peaks(self.phases(process(1, 3, 1, 5, 1, 9), theirs)["start"])["other processes"], 12)
        mine_later = process(1, 3, 1, 5, 7)
        self.assertEqual(self.peaks(self.phases(mine_later, theirs)["start"]),
                         {"weights": 3, "unmanaged runtime": 1, "other processes": 5, "unattributed": 11})

    def test_phases_are_inferred_where_none_is_declared(self):
        rows = self.phases(self.file("a", training(declared=False)))
        self.assertEqual(list(rows), ["start", "pause all", "all parked", "resume all", "all resident"])
        self.assertEqual(self.peaks(rows["all parked"]), {"unmanaged handle": 1, "other processes": 1, "unattributed": 3})
        self.assertEqual(rows["all parked"]["runs"], 4)

    def test_a_pause_of_one_tag_is_a_phase_named_after_what_is_missing(self):
        trace = TraceFile()
        trace.alloc(1, BASE, GIB, "weights")
        trace.alloc(1, BASE + GIB, GIB, "kv_cache")
        for op, time in (("pause_begin", 2), ("pause_end", 3), ("resume_begin", 4), ("resume_end", 5)):
            trace.event(op, time, "kv_cache", size=GIB, device=NO_DEVICE)
        rows = self.phases(self.file("a", trace))
        self.assertEqual(list(rows), ["start", "pause kv_cache", "without kv_cache", "resume kv_cache", "all resident"])
        self.assertEqual(self.peaks(rows["without kv_cache"]), {"weights": 1})

    def test_a_pause_that_failed_has_parked_nothing(self):
        trace = TraceFile()
        trace.alloc(1, BASE, GIB, "weights")
        trace.event("pause_begin", 2, "weights", device=NO_DEVICE)
        trace.event("pause_end", 3, "weights", kind=-4, device=NO_DEVICE)
        trace.alloc(4, BASE + GIB, GIB, "weights")
        self.assertEqual(self.peaks(self.phases(self.file("a", trace))["start"]), {"weights": 2})

    def test_the_maximum_over_devices_is_one_table(self):
        files = self.file("a", training()), self.file("b", training(pid=4712, device=1, weights=20))
        result = json.loads(self.lowtide("trace", "report", "--json", "--agg", "max-gpu", *files).stdout)
        (table,) = result["tables"]
        self.assertEqual(table["title"], "maximum over 2 devices of 2 processes")
        self.assertEqual({row["phase"]: self.peaks(row)["weights"] for row in table["phases"]}, {"start": 20, "rollout": 20, "train": 20})

    def test_who_allocated_is_named_with_the_tag(self):
        (process,) = self.report(self.file("a", training()))["processes"]
        self.assertEqual(process["sites"], [{"by": "load (model.py:42)", "tag": "weights", "allocations": 1, "peak": 14 * GIB}])

    def test_pinned_memory_of_the_host_takes_no_room_on_the_device(self):
        trace = TraceFile()
        trace.alloc(1, BASE, GIB, "weights")
        trace.alloc(2, BASE + GIB, 8 * GIB, kind=HOST_PINNED)
        self.assertEqual(self.phases(self.file("a", trace))["start"]["used"], GIB)

    def test_a_free_whose_allocation_a_ring_has_lost_takes_nothing_below_zero(self):
        trace = TraceFile()
        trace.event("free", 1, address=BASE, size=GIB, kind=DRIVER)
        trace.alloc(2, BASE, 2 * GIB, kind=DRIVER)
        self.assertEqual(self.phases(self.file("a", trace))["start"]["used"], 2 * GIB)

    def test_a_block_that_is_allocated_anew_at_its_address_counts_once(self):
        trace = TraceFile()
        trace.alloc(1, BASE, GIB, kind=DRIVER)
        trace.alloc(2, BASE, 3 * GIB, kind=DRIVER)
        self.assertEqual(self.phases(self.file("a", trace))["start"]["used"], 3 * GIB)

    def test_long_names_and_many_tags_leave_a_table_that_fits(self):
        trace = TraceFile()
        for i in range(40):
            trace.alloc(1, BASE + i * GIB, (i + 1) << 20, f"a_tag_whose_name_is_as_long_as_names_of_tags_may_be_in_{i:02}")
        text = self.lowtide("trace", "report", self.file("a", trace)).stdout
        self.assertLess(max(map(len, text.splitlines())), 260)
        self.assertIn("(40 tags; the 6 largest are shown, --json has all)", text)
        self.assertIn("a_tag_whose...s_may_be_in_39"[-8:], text)

    def test_names_that_would_act_on_a_terminal_are_shown_without(self):
        trace = TraceFile(host="no\x1b]0;de")
        trace.event("phase", 0, "evil\x1b[31m\nphase", value=1, device=NO_DEVICE)
        trace.alloc(1, BASE, GIB, "we\x1b[2Jights")
        trace.event("phase", 2, "c1\x9b31m\u202eturned\udcff", value=2, device=NO_DEVICE)
        file = self.file("a", trace)
        text = self.lowtide("trace", "report", file).stdout
        for part in ("on no?]0;de, device 0", "evil?[31m?phase", "c1?31m?turned?", "we?[2Jights"):
            self.assertIn(part, text)
        self.assertNotIn("\x1b", self.lowtide("trace", "diff", file, file, "--of", "nothing").stderr)

    def test_garbage_in_a_trace_is_no_crash(self):
        random.seed(7)
        path = self.file("a", training())
        with open(path, "rb") as file:
            whole = bytearray(file.read())
        for _ in range(60):
            broken = bytearray(whole)
            for _ in range(random.randrange(1, 200)):
                broken[random.randrange(4096, len(broken))] = random.randrange(256)
            broken = broken[:random.randrange(4096, len(broken) + 1)]
            with open(path, "wb") as file:
                file.write(broken)
            for verb in (["report"], ["log"], ["export", "--to", "csv", "-o", "-"], ["plot", "-o", "-"]):
                result = self.lowtide("trace", *verb, path)
                self.assertIn(result.returncode, (OK, USAGE), result.stderr)


class Log(TraceTest):
    def test_lines_are_those_of_verl(self):
        lines = self.lowtide("trace", "log", self.file("a", training(steps=1))).stdout.splitlines()
        self.assertEqual(lines[-1], "After train, memory allocated (GB): 53.00, memory reserved (GB): 53.00, device memory used/total"
                                    " (GB): 57.00/141.00")
        self.assertEqual(len(lines), 6)

    def test_what_is_parked_is_reserved_but_not_allocated(self):
        trace = training(steps=1)
        trace.events = trace.events[:-3]  # the resume
        line = self.lowtide("trace", "log", self.file("a", trace)).stdout.splitlines()[-1]
        self.assertIn("allocated (GB): 1.00, memory reserved (GB): 53.00, device memory used/total (GB): 5.00/141.00", line)

    def test_our_own_lines_are_read_back_with_process_and_device(self):
        files = self.file("a", training()), self.file("b", training(pid=4712, device=1, weights=20))
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as file:
            file.write(self.lowtide("trace", "log", *files).stdout)
        tables = json.loads(self.lowtide("trace", "log", "--json", log).stdout)["tables"]
        self.assertEqual([table["title"] for table in tables],
                         ["process 4711 on node1, device 0", "process 4712 on node1, device 1"])
        rows = {row["phase"]: row for row in tables[1]["phases"]}
        self.assertEqual(rows["After rollout"]["used"], 63 * GIB)
        self.assertEqual(self.peaks(rows["After rollout"]), {"allocated": 59, "reserved": 59})

    def test_a_log_without_such_lines_says_so(self):
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as file:
            file.write("epoch 1\n" * 100)
        self.check_refused(self.lowtide("trace", "log", log), USAGE, log, "no line about memory")

    def test_traces_and_logs_together_are_refused(self):
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as file:
            file.write("epoch 1\n")
        self.check_refused(self.lowtide("trace", "log", log, self.file("a", training())), USAGE, "traces and training logs")


class Diff(TraceTest):
    def test_each_phase_has_both_values_and_the_change(self):
        files = self.file("a", training()), self.file("b", training(cache=30))
        text = self.lowtide("trace", "diff", *files).stdout
        self.assertRegex(text, r"PHASE +A +B +CHANGE\n")
        self.assertRegex(text, r"rollout +59\.00 +51\.00 +-8\.00\n")
        self.assertRegex(text, r"largest +59\.00 +51\.00 +-8\.00\n")

    def test_markdown_can_be_posted(self):
        trace = training(cache=30)
        trace.event("phase", 60, "a|b", value=9, device=NO_DEVICE)
        files = self.file("a", training()), self.file("b", trace)
        text = self.lowtide("trace", "diff", "--markdown", "--of", "kv_cache", *files).stdout
        self.assertIn("| phase (kv_cache, peak in GiB) | A | B | change |\n| --- | ---: | ---: | ---: |\n", text)
        self.assertIn("| rollout | 38.00 | 30.00 | -8.00 |\n", text)
        self.assertIn("| a\\|b | - | 30.00 | - |\n", text)

    def test_the_change_is_the_difference_of_what_is_shown(self):
        sides = []
        for name, size in (("a", 1_000_000_000), ("b", 1_105_000_000)):
            trace = TraceFile()
            trace.alloc(1, BASE, size, "weights")
            sides.append(self.file(name, trace))
        self.assertIn("| start | 0.93 | 1.03 | +0.10 |", self.lowtide("trace", "diff", "--markdown", *sides).stdout)

    def test_lines_before_and_after_a_phase_are_of_the_phase(self):
        trace = self.file("a", training())
        log = os.path.join(self.folder, "train.log")
        with open(log, "w", encoding="utf-8") as file:
            file.write(self.lowtide("trace", "log", trace).stdout)
        result = self.lowtide("trace", "diff", "--markdown", trace, log)
        self.assertIn("| rollout | 59.00 | 57.00 | -2.00 |", result.stdout)
        self.assertEqual(result.stderr, "")

    def test_it_says_so_where_no_phase_of_one_is_one_of_the_other(self):
        log = os.path.join(self.folder, "train.log")
        with open(log, "w", encoding="utf-8") as file:
            file.write("Before generate, memory allocated (GB): 1.00, memory reserved (GB): 2.00, device memory used/total (GB): 3.00/141.00\n")
        self.assertIn("no phase of A is one of B", self.lowtide("trace", "diff", self.file("a", training()), log).stderr)

    def test_a_tag_that_neither_has_is_named_with_those_there_are(self):
        files = self.file("a", training()), self.file("b", training())
        self.check_refused(self.lowtide("trace", "diff", "--of", "lora", *files), USAGE, '"lora"', "weights", "kv_cache")

    def test_logs_are_compared_by_what_is_reserved_if_they_do_not_say_what_is_used(self):
        logs = []
        for name, reserved in (("a", 96.5), ("b", 90)):
            logs.append(os.path.join(self.folder, name))
            with open(logs[-1], "w", encoding="utf-8") as file:
                file.write(f"After building, memory allocated (GB): 1, memory reserved (GB): {reserved}\n")
        text = self.lowtide("trace", "diff", *logs).stdout
        self.assertIn("reserved, peak in GiB", text)
        self.assertRegex(text, r"After building +96\.50 +90\.00 +-6\.50\n")


class Usage(TraceTest):
    def test_files_that_cannot_be_read_have_the_documented_codes(self):
        for verb in (("report",), ("plot", "-o", "-")):
            self.check_refused(self.lowtide("trace", *verb, "/nowhere/x.ltt"), NOT_FOUND, "/nowhere/x.ltt",
                               "a program that never reaches a GPU leaves no trace")
        self.check_refused(self.lowtide("trace", "report", self.folder), USAGE, "folder")
        empty = os.path.join(self.folder, "empty")
        with open(empty, "wb"):
            pass
        self.check_refused(self.lowtide("trace", "report", empty), USAGE, empty)
        self.check_refused(self.lowtide("trace", "export", "--to", "csv", "-o", "-", empty), USAGE, empty)
        if os.geteuid() != 0:
            os.chmod(empty, 0)
            self.check_refused(self.lowtide("trace", "report", empty), PERMISSION, empty)

    def test_steps_that_nobody_has_are_refused_with_those_there_are(self):
        for verb in ("report", "log"):
            result = self.lowtide("trace", verb, "--steps", "7-9", self.file("a", training()))
            self.assertEqual((result.returncode, result.stdout), (USAGE, ""))
            self.assertIn("steps 1 to 4", result.stderr)
        self.check_refused(self.lowtide("trace", "report", "--steps", "2", self.file("b", training(steps=1))), USAGE,
                           "there is one step, and none")

    def test_what_is_of_the_whole_run_says_so_where_steps_are_chosen(self):
        file = self.file("a", training())
        self.assertIn("process 4711, all steps: 4 pauses, 4 resumes", self.lowtide("trace", "report", "--steps", "2", file).stdout)
        self.assertIn("process 4711: 4 pauses, 4 resumes", self.lowtide("trace", "report", file).stdout)

    def test_a_word_that_is_not_understood_is_named_with_the_help_of_the_command_that_it_stands_in(self):
        for words, named, command in ((("reprt", "x"), '"reprt"; did you mean report?', "lowtide trace"),
                                      (("export", "--to", "csv", "x"), "--output", "lowtide trace export"),
                                      (("plot", "-o", "x.svg", "--wide", "x"), "--wide", "lowtide trace plot")):
            result = self.lowtide("trace", *words)
            self.assertEqual(result.returncode, USAGE)
            self.assertIn(named, result.stderr)
            self.assertIn(f"(see `{command} --help`)", result.stderr)

    def test_a_program_may_name_each_of_its_100000_phases_anew(self):
        trace = TraceFile()
        trace.alloc(0, BASE, GIB, "weights")
        for i in range(100_000):
            trace.event("phase", 1 + i / 1000, f"step_{i}", value=i, device=NO_DEVICE)
        file = self.file("a", trace)
        diff = json.loads(self.lowtide("trace", "diff", "--json", file, file).stdout)["phases"]
        self.assertEqual([row["phase"] for row in diff[-3:]], ["step_99997", "step_99998", "largest"])
        self.assertEqual({(row["a"], row["b"]) for row in diff}, {(GIB, GIB)})

    def test_steps_that_are_no_range_are_refused(self):
        file = self.file("a", training())
        for steps in ("4-2", "x", "1-", "-1", "1-2-3"):
            self.check_refused(self.lowtide("trace", "report", f"--steps={steps}", file), USAGE, steps)

    def test_an_output_that_cannot_be_written_leaves_nothing_behind(self):
        file = self.file("a", training())
        result = self.lowtide("trace", "plot", "-o", os.path.join(self.folder, "nowhere", "x.html"), file)
        self.check_refused(result, 1, "nowhere", "No such file")
        self.check_refused(self.lowtide("trace", "export", "--to", "csv", "-o", self.runtime + "/x", file), 1)
        self.assertEqual([name for name in os.listdir(self.folder) if "part" in name], [])

    def test_every_subject_has_help_with_an_example(self):
        for subject in ("report", "log", "diff", "export", "plot"):
            text = self.lowtide("trace", subject, "--help").stdout
            self.assertRegex(text, rf"Examples:\n +lowtide trace {subject} ")

    def test_the_writer_of_these_tests_fills_more_than_one_chunk(self):
        trace = TraceFile()
        for i in range(5000):
            trace.alloc(i / 1000, BASE + i * 4096, 4096, "weights")
        self.assertGreater(len(trace.events), trace_file.EVENTS_PER_CHUNK)
        self.assertEqual(self.phases(self.file("a", trace))["start"]["used"], 5000 * 4096)


if __name__ == "__main__":
    unittest.main()
