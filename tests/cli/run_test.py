# SPDX-License-Identifier: Apache-2.0
"""lowtide run: what it sets, what it refuses, and that the program's ending is its own."""
import os
import shutil
import signal
import subprocess
import unittest

from support import COMMAND, CommandTest, DOCS, OK, PERMISSION, PRELOAD, USAGE, FAILED


class Run(CommandTest):
    def setUp(self):
        super().setUp()
        self.command = self.install(os.path.join(self.folder, "installed"))
        self.library = os.path.join(self.folder, "installed", "lib", "liblowtide_preload.so")

    @staticmethod
    def install(place, library_folder="lib"):
        os.makedirs(os.path.join(place, "bin"))
        os.makedirs(os.path.join(place, library_folder), exist_ok=True)
        shutil.copy(PRELOAD, os.path.join(place, library_folder, "liblowtide_preload.so"))
        return shutil.copy(COMMAND, os.path.join(place, "bin", "lowtide"))

    def run_program(self, *arguments, **variables):
        return self.lowtide("run", *arguments, command=self.command, **variables)

    def environment_seen(self, *options, **variables):
        result = self.run_program(*options, "--", "env", **variables)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        return dict(line.split("=", 1) for line in result.stdout.splitlines())

    def check_not_started(self, result, code, *parts):
        self.check_refused(result, code, *parts)

    def test_the_program_gets_the_library_and_the_settings(self):
        seen = self.environment_seen("--tag", "weights", "--set", "device.wait=20s", "--set", "tag.lora.pause=keep")
        self.assertEqual(seen["LD_PRELOAD"], self.library)
        self.assertEqual(seen["LOWTIDE_DEFAULT_TAG"], "weights")
        self.assertEqual(seen["LOWTIDE_CONF"], "device.wait:20s,tag.lora.pause:keep")
        self.assertNotIn("LOWTIDE_CONFIG", seen)

    def test_the_library_is_found_in_each_place(self):
        for place in ("lib/lowtide", "lib", "bin"):
            command = self.install(os.path.join(self.folder, place.replace("/", "_")), place)
            result = self.lowtide("run", "--", "printenv", "LD_PRELOAD", command=command)
            self.assertTrue(result.stdout.strip().endswith(f"/{place}/liblowtide_preload.so"), result)

    def test_what_is_set_already_stays_and_the_option_wins(self):
        seen = self.environment_seen("--set", "device.wait=1s", LOWTIDE_CONF="device.wait:2s,gate.drain:3s",
                                     LOWTIDE_DEFAULT_TAG="lora")
        self.assertEqual(seen["LOWTIDE_CONF"], "device.wait:2s,gate.drain:3s,device.wait:1s")
        self.assertEqual(seen["LOWTIDE_DEFAULT_TAG"], "lora")

    def test_another_preload_stays_before_ours_and_ours_is_there_once(self):
        other = shutil.copy(PRELOAD, os.path.join(self.folder, "libother.so"))
        self.assertEqual(self.environment_seen(LD_PRELOAD=other)["LD_PRELOAD"], f"{other}:{self.library}")
        both = f"{self.library}:{other}"
        self.assertEqual(self.environment_seen(LD_PRELOAD=both)["LD_PRELOAD"], both)
        spaced = f"{other} {self.library}"
        self.assertEqual(self.environment_seen(LD_PRELOAD=spaced)["LD_PRELOAD"], spaced)

    def test_a_configuration_file_is_named_by_its_whole_path(self):
        path = os.path.join(self.folder, "lowtide.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("tag.mine.pause = 'offload'\n")
        seen = self.environment_seen("--config", os.path.relpath(path), "--tag", "mine")
        self.assertEqual(os.path.realpath(seen["LOWTIDE_CONFIG"]), os.path.realpath(path))

    def test_a_trace_is_named_by_its_whole_path(self):
        path = os.path.relpath(os.path.join(self.folder, "%p.ltt"))
        seen = self.environment_seen("--trace", path, LOWTIDE_TRACE="/other/%p.ltt")
        self.assertEqual(os.path.realpath(seen["LOWTIDE_TRACE"]), os.path.realpath(path))
        self.check_not_started(self.run_program("--trace", "%q.ltt", "--", "env"), USAGE, "LOWTIDE_TRACE", "%q.ltt")

    def test_exit_code_signal_arguments_and_streams_are_the_programs(self):
        self.assertEqual(self.run_program("--", "sh", "-c", "exit 42").returncode, 42)
        self.assertEqual(self.run_program("--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)
        result = self.run_program("--", "printf", "%s,", "--tag", "x y", "--", "")
        self.assertEqual(result.stdout, "--tag,x y,--,,")
        piped = subprocess.run([self.command, "run", "--", "cat"], env=self.environment, input="in", text=True,
                               capture_output=True, check=True)
        self.assertEqual(piped.stdout, "in")

    def test_a_signal_reaches_the_program_because_it_is_the_same_process(self):
        process = subprocess.Popen([self.command, "run", "--", "sh", "-c", "echo $$; exec sleep 60"], env=self.environment,
                                   stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline().strip(), str(process.pid))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), -signal.SIGINT)
        process.stdout.close()

    def test_the_program_may_stand_without_a_mark(self):
        self.assertEqual(self.run_program("--tag", "weights", "printf", "%s,", "-x", "--", "--tag").stdout, "-x,--,--tag,")

    def test_a_program_that_is_not_there_or_not_executable_ends_as_with_env(self):
        self.check_not_started(self.run_program("--", "no-such-program"), 127, "no-such-program: No such file")
        self.check_not_started(self.run_program("--", self.folder), 126, "Permission denied")

    def test_bad_usage(self):
        self.check_not_started(self.run_program(), USAGE, "no program is given")
        self.check_not_started(self.run_program("--"), USAGE, "no program is given")
        self.check_not_started(self.run_program("--tga", "x", "--", "env"), USAGE, "unknown option --tga")
        self.check_not_started(self.run_program("--tag"), USAGE, "--tag")
        for option in ("--tag", "--config", "--set", "--trace"):
            self.check_not_started(self.run_program(option, "", "--", "env"), USAGE, option)

    def test_bad_configuration_does_not_start_the_program(self):
        path = os.path.join(self.folder, "bad.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n[tag.kv_cache]\npause = 'discrad'\n")
        touched = os.path.join(self.folder, "touched")
        for options, parts in (
                (("--config", path), ("bad.toml:3", "tag.kv_cache.pause", '"discrad"', "did you mean discard?")),
                (("--config", "/absent.toml"), ("/absent.toml: No such file or directory",)),
                (("--config", self.folder), ("is a directory",)),
                (("--set", "gate.drian=1s"), ("--set: ", 'unknown key "gate.drian"', "did you mean gate.drain?")),
                (("--set", "gate.drain"), ("not KEY=VALUE",)),
                (("--set", "device.wait=1s,gate.drain:x"), ("--set device.wait=1s,gate.drain:x: a value with a comma",)),
                (("--set", "disk.path=/a,b"), ("--set disk.path=/a,b: a value with a comma", "--config")),
                (("--set", "disk.path=/tmp,tag.weights.pause:keep"), ("--set disk.path=/tmp,", "a value with a comma")),
                (("--set", "disk.path=/tmp,"), ("--set disk.path=/tmp,: a value with a comma",)),
                (("--tag", "a b"), ('"a b" is not a tag name',))):
            self.check_not_started(self.run_program(*options, "--", "touch", touched), USAGE, *parts)
        self.check_not_started(self.run_program("--", "touch", touched, LOWTIDE_CONF="x:1"), USAGE, 'unknown key "x"')
        self.check_not_started(self.run_program("--", "touch", touched, LOWTIDE_LOG="loud"), USAGE, "LOWTIDE_LOG")
        self.check_not_started(self.run_program("--", "touch", touched, LOWTIDE_BACKEND="vmn"), USAGE, "LOWTIDE_BACKEND")
        self.assertFalse(os.path.exists(touched))

    def test_a_default_tag_whose_action_is_not_known_is_refused_with_what_to_set(self):
        for variables, options in (({}, ("--tag", "mine")), ({"LOWTIDE_DEFAULT_TAG": "mine"}, ()),
                                   ({}, ("--tag", "mine", "--set", "tag.mine.fill=zero"))):
            self.check_not_started(self.run_program(*options, "--", "env", **variables), USAGE, '"mine"',
                                   "--set tag.mine.pause=offload")
        self.environment_seen("--tag", "mine", "--set", "tag.mine.pause=keep")

    def test_a_runtime_folder_that_cannot_be_used_is_refused_before_the_start(self):
        link, wide = os.path.join(self.folder, "link"), os.path.join(self.folder, "wide")
        os.symlink(self.folder, link)
        os.mkdir(wide)
        os.chmod(wide, 0o777)
        for path, part in (("/proc/lowtide", "cannot be made"), (link, "symbolic link"), (link + "/", "symbolic link"),
                           (wide, "can be written by others"), ("relative", "not an absolute path")):
            self.check_not_started(self.run_program("--", "env", LOWTIDE_RUNTIME_DIR=path), PERMISSION, part)
        self.assertEqual(os.stat(wide).st_mode & 0o777, 0o777)

    def test_a_library_that_is_missing_or_cannot_be_named(self):
        for name in ("with space", "with:colon"):
            command = self.install(os.path.join(self.folder, name))
            self.check_refused(self.lowtide("run", "--", "env", command=command), USAGE, "a space or a colon", name)
        os.unlink(self.library)
        self.check_not_started(self.run_program("--", "env"), FAILED, "liblowtide_preload.so is not installed: looked in")


class Help(CommandTest):
    def test_every_verb_has_help_with_examples_and_the_exit_codes(self):
        top = self.lowtide("--help")
        self.assertEqual((top.returncode, top.stderr), (OK, ""))
        for verb in ("run", "ps", "status", "pause", "resume", "doctor"):
            self.assertIn(f"  {verb} ", top.stdout)
            text = self.lowtide(verb, "--help")
            self.assertEqual((text.returncode, text.stderr), (OK, ""))
            self.assertIn("Examples:", text.stdout)
            self.assertIn("Exit codes:", text.stdout)

    def test_help_is_a_word_too(self):
        self.assertEqual(self.lowtide("help").stdout, self.lowtide("--help").stdout)
        for words in (("help", "pause"), ("help", "pause", "4711")):
            result = self.lowtide(*words)
            self.assertEqual((result.returncode, result.stdout), (OK, self.lowtide("pause", "--help").stdout))

    def test_the_page_lists_every_verb_that_the_help_has(self):
        verbs = [line.split()[0] for line in self.lowtide("--help").stdout.split("Subcommands:\n")[1].split("\n\n")[0].splitlines()]
        self.assertIn("demo", verbs)
        with open(os.path.join(DOCS, "cli.md"), encoding="utf-8") as page:
            text = page.read()
        for verb in (*verbs, "--version"):
            self.assertIn(f"\nlowtide {verb}", text)

    def test_version(self):
        self.assertRegex(self.lowtide("--version").stdout, r"^lowtide \d+\.\d+\.\d+\n$")

    def test_wrong_words(self):
        self.check_refused(self.lowtide(), USAGE, "subcommand is required")
        self.check_refused(self.lowtide("puase", 1), USAGE, 'unknown command "puase"; did you mean pause?', "`lowtide --help`")
        self.check_refused(self.lowtide("xyzzy"), USAGE, 'unknown command "xyzzy" (see')
        self.check_refused(self.lowtide("help", "resum"), USAGE, "did you mean resume?")
        self.check_refused(self.lowtide("pause"), USAGE, "PID is required", "(see `lowtide pause --help`)")
        self.check_refused(self.lowtide("run", "--tag"), USAGE, "(see `lowtide run --help`)")
        self.check_refused(self.lowtide("ps", "--", "x"), USAGE, 'unexpected word "x" (see `lowtide ps --help`)')

    def test_a_wrong_word_is_named_before_what_is_missing(self):
        for words, named, command in ((("--nope",), 'unknown option "--nope"', "lowtide"),
                                      (("--nope", "ps"), 'unknown option "--nope"', "lowtide"),
                                      (("help", "xyzzy"), 'unknown command "xyzzy"', "lowtide"),
                                      (("trace", "reprt", "--help"), '"reprt"; did you mean report?', "lowtide trace"),
                                      (("ps", "--jsno"), '"--jsno"; did you mean --json?', "lowtide ps"),
                                      (("trim", "--nope"), '"--nope"', "lowtide trim"),
                                      (("trim", "--nope=3"), '"--nope"', "lowtide trim"),
                                      (("policy", "check", "--nope"), '"--nope"', "lowtide policy check"),
                                      (("pause", "1", "two", "three"), 'unexpected word "two"', "lowtide pause"),
                                      (("trace", "export", "--nope", "x"), '"--nope"', "lowtide trace export")):
            self.check_refused(self.lowtide(*words), USAGE, named, f"(see `{command} --help`)")

    def test_help_that_a_command_has_taken_is_shown_beside_a_word_too_many(self):
        self.assertIn("Usage: lowtide ps", self.lowtide("ps", "x", "--help").stdout)
        self.assertIn("Usage: lowtide run", self.lowtide("run", "--help", "x").stdout)

    def test_the_page_has_the_exit_codes_that_the_help_has(self):
        with open(os.path.join(DOCS, "cli.md"), encoding="utf-8") as page:
            text = page.read()
        codes = self.lowtide("--help").stdout.split("Exit codes:\n")[1].splitlines()
        rows = [line.strip().split("  ", 1) for line in codes if line.strip()]
        self.assertEqual(len(rows), 7)
        for code, meaning in rows:
            self.assertIn(f"| {code} | {meaning} |", text)


if __name__ == "__main__":
    unittest.main()
