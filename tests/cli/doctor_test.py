# SPDX-License-Identifier: Apache-2.0
"""lowtide doctor: what it finds in its surroundings, and that a probe that fails is a finding."""
import json
import os
import shutil
import unittest

from support import BUILD, COMMAND, CommandTest, FAILED, OK, PRELOAD

GIBIBYTE = 1 << 30
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

    def test_a_device_that_cannot_be_paused_is_an_error(self):
        sick = json.loads(json.dumps(HEALTHY))
        sick["devices"][0]["backend"] = "off"
        self.install_probe(f"echo '{json.dumps(sick)}'")
        self.assertEqual(self.one(self.findings(FAILED), "device")["level"], "error")

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
        findings = self.findings(OK, LD_LIBRARY_PATH=os.path.join(BUILD, "lib", "simulated"))
        self.assertEqual(self.one(findings, "driver")["level"], "ok")
        self.assertIn("no GPU is involved", self.one(findings, "simulated")["text"])

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
