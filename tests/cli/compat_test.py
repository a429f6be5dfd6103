# SPDX-License-Identifier: Apache-2.0
"""lowtide compat: our libraries under torch_memory_saver's file names, and the way back."""
import os
import threading
import unittest

from support import CommandTest, FAILED, NOT_FOUND, OK, REFUSED, USAGE

ORIGINAL = b"\x7fELF and tms_set_interesting_region"
NAMES = [f"torch_memory_saver_hook_mode_{mode}_cu{major}.abi3.so" for mode in ("preload", "torch") for major in (12, 13)]


class Compat(CommandTest):
    def setUp(self):
        super().setUp()
        self.site = os.path.join(self.folder, "site-packages")
        os.mkdir(self.site)

    def put(self, name, content=ORIGINAL):
        with open(os.path.join(self.site, name), "wb") as file:
            file.write(content)

    def content(self):
        found = {}
        for name in os.listdir(self.site):
            with open(os.path.join(self.site, name), "rb") as file:
                found[name] = file.read()
        return found

    def install(self):
        return self.lowtide("compat", "install", "--into", self.site)

    def uninstall(self):
        return self.lowtide("compat", "uninstall", "--from", self.site)

    def test_what_is_installed_is_taken_out_again_without_a_trace(self):
        for name in NAMES:
            self.put(name, ORIGINAL + name.encode())
        self.put("torch_memory_saver.py", b"")
        before = self.content()
        for _ in range(2):  # a second time brings what is there up to date
            result = self.install()
            self.assertEqual((result.returncode, result.stdout.count("\n")), (OK, 4), result.stderr)
        after = self.content()
        self.assertEqual(set(after) - set(before), {"liblowtide.so", *(f"{name}.original" for name in NAMES)})
        for name in NAMES:
            self.assertIn(b"lowtide_door_table_v1_get", after[name])
            self.assertEqual(after[f"{name}.original"], before[name])
            self.assertFalse(os.path.islink(os.path.join(self.site, name)))
        result = self.uninstall()
        self.assertEqual(result.returncode, OK, result.stderr)
        self.assertEqual(self.content(), before)
        self.assertEqual(self.uninstall().returncode, OK)

    def test_files_that_it_does_not_know_are_not_touched(self):
        for name, content in ((NAMES[1], b"something else"), ("liblowtide.so", b"\x7fELF of somebody"),
                              (f"{NAMES[0]}.original", b"another")):
            self.put(NAMES[0])
            self.put(name, content)
            before = self.content()
            for result in (self.install(), self.uninstall()):
                self.check_refused(result, REFUSED, name, "nothing was changed")
            self.assertEqual(self.content(), before)
            os.unlink(os.path.join(self.site, name))

    def test_a_folder_without_the_package_is_said_to_be_one(self):
        self.check_refused(self.install(), NOT_FOUND, self.site, "pip install torch_memory_saver")
        self.check_refused(self.lowtide("compat", "install", "--into", f"{self.site}/none"), FAILED, "cannot be read")

    def test_an_original_that_is_gone_is_named(self):
        self.put(NAMES[0])
        self.assertEqual(self.install().returncode, OK)
        os.unlink(os.path.join(self.site, f"{NAMES[0]}.original"))
        self.check_refused(self.uninstall(), FAILED, NAMES[0], "reinstall torch_memory_saver")

    def test_a_version_that_pip_put_over_ours_is_the_original_from_then_on(self):
        for name in NAMES:
            self.put(name)
        self.assertEqual(self.install().returncode, OK)
        for name in NAMES:
            self.put(name, ORIGINAL + b" 2")
        self.assertEqual(self.install().returncode, OK)
        self.assertEqual(self.content()[f"{NAMES[0]}.original"], ORIGINAL + b" 2")
        for name in NAMES:
            self.put(name, ORIGINAL + b" 3")
        self.assertEqual(self.uninstall().returncode, OK)
        self.assertEqual(self.content(), {name: ORIGINAL + b" 3" for name in NAMES})

    def test_an_installation_that_was_broken_off_is_finished_or_undone(self):
        for name in NAMES:
            self.put(name)
        before = self.content()
        for end in (self.install, self.uninstall):
            self.put(f"{NAMES[0]}.original")
            os.unlink(os.path.join(self.site, NAMES[0]))
            self.assertEqual(end().returncode, OK)
            self.assertIn(NAMES[0], self.content())
            self.assertEqual(self.uninstall().returncode, OK)
            self.assertEqual(self.content(), before)

    def test_two_at_a_time_do_not_take_each_others_library_for_the_original(self):
        for name in NAMES:
            self.put(name)
        threads = [threading.Thread(target=self.install) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([self.content()[f"{name}.original"] for name in NAMES], [ORIGINAL] * 4)

    def test_usage(self):
        self.check_refused(self.lowtide("compat", "remove", "--into", self.site), USAGE, "remove")
        self.check_refused(self.lowtide("compat", "install"), USAGE, "--into")


if __name__ == "__main__":
    unittest.main()
