# SPDX-License-Identifier: Apache-2.0
"""lowtide doctor: what it finds in its surroundings, and that a probe that fails is a finding."""
import json
import os
import shutil
import subprocess
import unittest

from support import BUILD, COMMAND, CommandTest, FAILED, OK, PRELOAD

GIBIBYTE = 1 << 30
SIMULATED = os.path.join(BUILD, "lib", "simulated")
HEALTHY = {"driver": "580.1", "simulated": False,
           "devices": [{"device": 0, "name": "Test GPU", "backend": "vmm", "reason": "tried", "granularity": 2 << 20,
                        "free": GIBIBYTE, "total": 2 * GIBIBYTE}]}


class Doctor(CommandTest):
    def setUp(self):
        super().setUp()
        self.bin, self.lib = os.path.join(self.folder, "bin"), os.path.join(self.folder, "lib")
        os.makedirs(self.bin)
        os.makedirs(self.lib)
        self.command = shutil.copy(COMMAND, self.bin)
        shutil.copy(PRELOAD, self.lib)
        self.environment["NCCL_GRAPH_REGISTER"] = "0"
        self.install_probe(f"echo '{json.dumps(HEALTHY)}'")

    def install_probe(self, script):
        path = os.path.join(self.bin, "lowtide-probe")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)

    def findings(self, code, **variables):
        result = self.lowtide("doctor", "--json", command=self.command, **variables)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["ok"], code == OK)
        return answer["findings"]

    def one(self, findings, subject):
        return next(finding for finding in findings if finding["subject"] == subject)

    def test_a_sound_machine_is_ok_and_nothing_is_made(self):
        findings = self.findings(OK)
        self.assertEqual(self.one(findings, "driver")["text"], "driver 580.1, 1 device")
        device = self.one(findings, "device")
        self.assertEqual(device["level"], "ok")
        self.assertIn("backend vmm (tried), granularity 2.00 MiB, 1.00 GiB of 2.00 GiB free", device["text"])
        for subject in ("host memory", "memlock", "configuration", "library"):
            self.one(findings, subject)
        self.assertFalse(os.path.exists(self.runtime))

    def test_the_text_has_a_level_a_line_and_what_to_do(self):
        result = self.lowtide("doctor", command=self.command, LOWTIDE_CONF="nope:1")
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("ok       driver 580.1, 1 device\n", result.stdout)
        self.assertIn('error    LOWTIDE_CONF: unknown key "nope"\n         -> see docs/configuration.md\n', result.stdout)
        self.assertNotIn("\x1b", result.stdout)

    def test_a_probe_that_is_missing_fails_or_talks_nonsense_is_an_error(self):
        for script, part in (("echo '{\"error\":\"libcuda.so.1 is not there\"}'", "libcuda.so.1 is not there"),
                             ("echo nonsense", "cannot be read"), ("echo '{}'", "cannot be read"), ("exit 3", "ended with code 3"),
                             ("kill -SEGV $$", "was killed by signal 11"),
                             ("echo '{\"driver\":\"1\",\"devices\":[],\"simulated\":false}'", "driver 1, 0 devices")):
            self.install_probe(script)
            driver = self.one(self.findings(FAILED), "driver")
            self.assertEqual(driver["level"], "error")
            self.assertIn(part, driver["text"])
        os.unlink(os.path.join(self.bin, "lowtide-probe"))
        self.assertIn("not installed", self.one(self.findings(FAILED), "driver")["text"])

    def test_where_no_vendor_has_a_gpu_the_reasons_of_both_are_said(self):
        for name in ("libcuda.so.1", "libamdhip64.so", *(f"libamdhip64.so.{version}" for version in (5, 6, 7))):
            with open(os.path.join(self.lib, name), "wb"):
                pass  # no library: the loader looks no further
        self.command = COMMAND
        driver = self.one(self.findings(FAILED, LD_LIBRARY_PATH=self.lib), "driver")
        self.assertRegex(driver["text"], r"libcuda\.so\.1 cannot be opened.*; .*libamdhip64\.so cannot be opened")

    def test_a_device_that_cannot_be_paused_is_an_error(self):
        sick = json.loads(json.dumps(HEALTHY))
        sick["devices"][0]["backend"] = "off"
        self.install_probe(f"echo '{json.dumps(sick)}'")
        self.assertEqual(self.one(self.findings(FAILED), "device")["level"], "error")

    def test_which_way_a_device_works_is_said(self):
        plain = json.loads(json.dumps(HEALTHY))
        plain["devices"][0].update(backend="recreate", reason="no vmm: cuMemMap answered 801")
        self.install_probe(f"echo '{json.dumps(plain)}'")
        device = self.one(self.findings(OK), "device")
        self.assertEqual(device["level"], "note")
        self.assertIn("backend recreate (no vmm: cuMemMap answered 801)", device["text"])
        plain["devices"] = [{"device": 0, "backend": "none", "reason": "vmm+cycle is not for this device"}]
        self.install_probe(f"echo '{json.dumps(plain)}'")
        device = self.one(self.findings(FAILED), "device")
        self.assertEqual(device["level"], "error")
        self.assertIn("cannot be used: vmm+cycle is not for this device", device["text"])

    def test_less_host_memory_than_device_memory_is_a_warning_with_the_numbers(self):
        large = json.loads(json.dumps(HEALTHY))
        large["devices"][0]["total"] = 1 << 55
        self.install_probe(f"echo '{json.dumps(large)}'")
        memory = self.one(self.findings(OK), "host memory")
        self.assertEqual(memory["level"], "warning")
        self.assertIn("of up to 32.0 PiB of device memory", memory["text"])

    def test_a_simulated_driver_is_said(self):
        self.install_probe(f"echo '{json.dumps({**HEALTHY, 'simulated': True})}'")
        self.assertIn("no GPU is involved", self.one(self.findings(OK), "simulated")["text"])

    def test_a_driver_without_a_version_is_a_driver(self):
        self.install_probe(f"echo '{json.dumps({**HEALTHY, 'driver': None})}'")
        self.assertEqual(self.one(self.findings(OK), "driver")["text"], "driver without a version, 1 device")

    def test_the_probe_of_this_build_is_understood_on_the_simulated_gpu(self):
        self.command = COMMAND
        findings = self.findings(OK, LD_LIBRARY_PATH=SIMULATED)
        self.assertEqual(self.one(findings, "driver")["level"], "ok")
        self.assertIn("no GPU is involved", self.one(findings, "simulated")["text"])

    def probe(self, **variables):
        return subprocess.Popen([os.path.join(BUILD, "bin", "lowtide-probe")], stdout=subprocess.PIPE, text=True,
                                env={**self.environment, "LD_LIBRARY_PATH": SIMULATED, **variables})

    def test_eight_processes_that_begin_at_once_on_a_small_device_all_find_what_it_can_do(self):
        shared = os.path.join(self.folder, "devices")
        os.mkdir(shared)
        for memory in ("400M", "24M"):
            probes = [self.probe(LOWTIDE_SIM_DIR=shared, LOWTIDE_SIM_MEMORY=memory) for _ in range(8)]
            answers = [json.loads(probe.communicate()[0]) for probe in probes]
            self.assertEqual([answer["devices"][0]["backend"] for answer in answers], ["vmm"] * 8, answers)

    def test_a_backend_is_asked_for_by_its_name(self):
        for name in ("vmm", "recreate", "off"):
            device = json.loads(self.probe(LOWTIDE_BACKEND=name).communicate()[0])["devices"][0]
            self.assertEqual(device["backend"], name)
            self.assertIn("LOWTIDE_BACKEND", device["reason"])
        device = json.loads(self.probe(LOWTIDE_BACKEND="vmm+cycle").communicate()[0])["devices"][0]
        self.assertEqual(device["backend"], "none")
        self.assertIn("vmm, recreate, off", device["reason"])
        self.assertIn("LOWTIDE_BACKEND", self.one(self.findings(FAILED, LOWTIDE_BACKEND="vmn"), "configuration")["text"])

    def selftest(self, code, **variables):
        self.command = COMMAND
        variables = {"LD_LIBRARY_PATH": SIMULATED, "LOWTIDE_SIM_MEMORY": "128M", **variables}
        result = self.lowtide("doctor", "--selftest", "--json", command=COMMAND, **variables)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        answer = json.loads(result.stdout)
        self.assertEqual(answer["ok"], code == OK)
        text = self.lowtide("doctor", "--selftest", command=COMMAND, **variables)
        self.assertEqual((text.returncode, text.stderr), (code, ""))
        return answer["report"], text.stdout

    def test_a_selftest_says_what_each_backend_of_a_device_can_do(self):
        report, text = self.selftest(OK)
        device = report["devices"][0]
        self.assertEqual(device["backend"], "vmm")
        self.assertEqual([each["backend"] for each in device["candidates"]], ["vmm", "recreate", "off"])
        for each in device["candidates"]:
            self.assertGreater(len(each["checks"]), 5)
            self.assertTrue(all(check["ok"] for check in each["checks"]), each)
        vmm = device["candidates"][0]
        self.assertEqual((vmm["trial"]["verdict"], vmm["trial"]["address_came_back"]), ("works", True))
        self.assertEqual(vmm["measures"]["largest_handle"], 64 << 20)
        self.assertGreater(vmm["measures"]["copy_out"], 0)
        self.assertIn("simulated: no GPU is involved", text)
        self.assertIn("11 of 11 checks passed", text)

    def test_a_selftest_shows_the_call_that_fails_and_what_works_instead(self):
        report, text = self.selftest(OK, LOWTIDE_SIM_FAIL="cuMemMap:1+")
        device = report["devices"][0]
        self.assertEqual(device["backend"], "recreate")
        self.assertEqual([each["backend"] for each in device["candidates"]], ["vmm"] * 3 + ["recreate", "off"])
        self.assertIn("cuMemMap", device["candidates"][0]["trial"]["why"])
        self.assertIn("trial: fails: cuMemMap answered", text)

    def test_a_selftest_in_which_a_working_backend_breaks_a_promise_fails(self):
        report, text = self.selftest(FAILED, LOWTIDE_SIM_FAIL="cuMemcpyDtoDAsync:1+")
        failed = [check for check in report["devices"][0]["candidates"][0]["checks"] if not check["ok"]]
        self.assertEqual([check["name"] for check in failed], ["bytes are copied within the device"])
        self.assertIn("10 of 11 checks passed\n    FAILED bytes are copied within the device: cuMemcpyDtoDAsync", text)

    def test_a_selftest_without_an_answer_says_why(self):
        for script, part in (("echo '{\"error\":\"libcuda.so.1 is not there\"}'", "libcuda.so.1 is not there"),
                             ("echo nonsense", "cannot be read"), ("kill -SEGV $$", "was killed by signal 11")):
            self.install_probe(script)
            self.check_refused(self.lowtide("doctor", "--selftest", command=self.command), FAILED, part)

    def test_variables_that_stand_in_the_way(self):
        other = shutil.copy(PRELOAD, os.path.join(self.folder, "libother.so"))
        ours = os.path.join(self.lib, "liblowtide_preload.so")
        findings = self.findings(OK, LD_PRELOAD=f"{other}:{ours}", PYTORCH_CUDA_ALLOC_CONF="a:b, Expandable_Segments: True",
                                 NCCL_GRAPH_REGISTER="1", NCCL_CUMEM_ENABLE="1", LOWTIDE_CONFF="x")
        preload = self.one(findings, "LD_PRELOAD")["text"]
        self.assertIn(other, preload)
        self.assertNotIn("liblowtide_preload", preload)
        for subject in ("expandable_segments", "NCCL_GRAPH_REGISTER", "LOWTIDE_CONFF"):
            self.assertEqual(self.one(findings, subject)["level"], "warning")
        self.one(findings, "NCCL_CUMEM_ENABLE")
        off = self.findings(OK, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False", LD_PRELOAD=ours)
        subjects = {finding["subject"] for finding in off}
        self.assertFalse(subjects & {"expandable_segments", "LD_PRELOAD", "NCCL_CUMEM_ENABLE"})
        self.assertIn("expandable_segments", {f["subject"] for f in self.findings(OK, PYTORCH_ALLOC_CONF="expandable_segments:True")})

    def test_an_unset_graph_registration_is_a_note(self):
        del self.environment["NCCL_GRAPH_REGISTER"]
        self.assertEqual(self.one(self.findings(OK), "NCCL_GRAPH_REGISTER")["level"], "note")

    def test_a_configuration_or_a_folder_that_cannot_be_used_is_an_error(self):
        self.assertIn("tag.x.pause", self.one(self.findings(FAILED, LOWTIDE_CONF="tag.x.pause:z"), "configuration")["text"])
        self.assertIn('"mine"', self.one(self.findings(FAILED, LOWTIDE_DEFAULT_TAG="mine"), "configuration")["text"])
        link = os.path.join(self.folder, "link")
        os.symlink(self.folder, link)
        self.assertIn("symbolic link", self.one(self.findings(FAILED, LOWTIDE_RUNTIME_DIR=link), "runtime folder")["text"])


if __name__ == "__main__":
    unittest.main()
