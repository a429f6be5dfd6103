# SPDX-License-Identifier: Apache-2.0
"""lowtide env: what each launcher reads out of it is what `lowtide run` would have set, and what it cannot be told is
refused."""
import json
import os
import shutil
import subprocess
import unittest

from support import COMMAND, CommandTest, FAILED, OK, PRELOAD, USAGE

try:
    import yaml
except ImportError:
    yaml = None

AWKWARD = "/tmp/it's a \"b\" $HOME `x` $(y) \\ é"
OURS = "/opt/lowtide/lib/liblowtide_preload.so"


class Env(CommandTest):
    def setUp(self):
        super().setUp()
        self.place = os.path.join(self.folder, "installed")
        for folder in ("bin", "lib"):
            os.makedirs(os.path.join(self.place, folder))
        self.command = shutil.copy(COMMAND, os.path.join(self.place, "bin", "lowtide"))
        self.library = shutil.copy(PRELOAD, os.path.join(self.place, "lib", "liblowtide_preload.so"))
        self.state = os.path.join(self.place, "lib", "liblowtide.so")
        shutil.copy(PRELOAD, self.state)

    def env(self, *arguments, **variables):
        return self.lowtide("env", *arguments, command=self.command, **variables)

    def printed(self, *arguments, **variables):
        result = self.env(*arguments, **variables)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        return result.stdout

    def in_sh(self, text, *command, **variables):
        """What `command` prints in a shell where `text` is "$printed"."""
        result = subprocess.run(["sh", "-c", *command], env={**self.environment, "printed": text, **variables}, text=True,
                                capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        return result.stdout

    def docker_words(self, *arguments, **variables):
        line = self.printed("--docker", *arguments, **variables)
        self.assertEqual(line.count("\n"), 1)
        return self.in_sh(line.rstrip("\n"), 'eval "printf \'%s\\0\' $printed IMAGE"').split("\0")[:-2]

    @staticmethod
    def after(words, option):
        return [words[i + 1] for i, word in enumerate(words) if word == option]

    def docker_variables(self, *arguments, **variables):
        return dict(word.split("=", 1) for word in self.after(self.docker_words(*arguments, **variables), "-e"))

    def test_every_form_says_what_run_sets(self):
        options = ("--tag", "mine", "--set", "tag.mine.pause=keep", "--set", f"disk.path={AWKWARD}")
        seen = self.lowtide("run", *options, "--", "env", "-0", command=self.command)
        set_by_run = {name: value for name, value in (entry.split("=", 1) for entry in seen.stdout.split("\0")[:-1])
                      if name.startswith("L") and name not in self.environment}
        self.assertEqual(sorted(set_by_run), ["LD_PRELOAD", "LOWTIDE_CONF", "LOWTIDE_DEFAULT_TAG"])
        set_by_run["LOWTIDE_RUNTIME_DIR"] = self.runtime

        self.assertEqual(json.loads(self.printed("--json", *options)), set_by_run)
        for form in ((), ("--shell",)):
            exported = self.in_sh(self.printed(*form, *options), 'eval "$printed" && exec env -0')
            exported = dict(entry.split("=", 1) for entry in exported.split("\0")[:-1])
            self.assertEqual({name: exported.get(name) for name in set_by_run}, set_by_run)
        self.assertEqual(self.docker_variables(*options), {**set_by_run, "LD_PRELOAD": OURS})

    def test_a_failure_stops_a_shell_that_asks_first(self):
        script = f'variables=$("{self.command}" env --set no.such=1) && eval "$variables" && echo started'
        result = subprocess.run(["sh", "-c", script], env=self.environment, text=True, capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (USAGE, ""))

    def test_a_preload_that_is_there_stays_before_ours_and_ours_is_there_once(self):
        for preloads, expected in (("/lib/other.so", f"/lib/other.so:{self.library}"),
                                   (f"{self.library}:/lib/other.so", f"{self.library}:/lib/other.so")):
            # As `env` would have it: a library that is missing makes the loader speak on stderr.
            result = self.env("--json", LD_PRELOAD=preloads)
            self.assertEqual((result.returncode, json.loads(result.stdout)["LD_PRELOAD"]), (OK, expected))
        for preloads in ("/lib/other.so", f"{self.library}:/lib/other.so"):
            result = self.env("--docker", LD_PRELOAD=preloads)
            self.assertIn(f" -e LD_PRELOAD=/lib/other.so:{OURS} ", result.stdout)

    def test_what_the_environment_says_is_passed_on_and_the_options_win(self):
        said = {"LOWTIDE_CONF": "device.wait:2s", "LOWTIDE_LOG": "debug", "LOWTIDE_REQUIRE": "1", "LOWTIDE_BACKEND": "off"}
        printed = json.loads(self.printed("--json", "--set", "device.wait=1s", **said))
        self.assertEqual({name: printed[name] for name in said}, {**said, "LOWTIDE_CONF": "device.wait:2s,device.wait:1s"})

    def test_ray_gets_a_runtime_env_without_what_ray_would_replace(self):
        printed = json.loads(self.printed("--ray", "--tag", "weights"))
        self.assertEqual(list(printed), ["env_vars"])
        self.assertEqual(printed["env_vars"], json.loads(self.printed("--json", "--tag", "weights")))
        self.check_refused(self.env("--ray", "--set", "disk.path=/a/$b"), USAGE, "LOWTIDE_CONF=disk.path:/a/$b", "Ray", '"$"')

    def test_docker_brings_in_single_files_and_no_folder_of_the_system(self):
        path = os.path.join(self.folder, "my file.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("tag.mine.pause = 'offload'\n")
        words = self.docker_words("--config", path)
        targets = {}
        for mount in self.after(words, "-v"):
            source, target, mode = mount.split(":")
            self.assertTrue(os.path.isfile(source), mount)
            self.assertEqual(mode, "ro")
            targets[target] = source
        self.assertEqual(targets, {
            "/opt/lowtide/bin/lowtide": self.command, OURS: self.library, "/opt/lowtide/lib/liblowtide.so": self.state,
            "/opt/lowtide/lowtide.toml": path})
        self.assertEqual(self.docker_variables("--config", path)["LOWTIDE_CONFIG"], "/opt/lowtide/lowtide.toml")
        self.assertEqual(self.after(words, "--ulimit"), ["memlock=-1"])
        self.assertTrue([word for word in words if word.startswith("--shm-size=")])

    @unittest.skipUnless(yaml, "there is no YAML library (python3-yaml)")
    def test_the_pods_volumes_and_mounts_fit_each_other(self):
        path = os.path.join(self.folder, "lowtide.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("tag.mine.pause = 'offload'\n")
        spec = yaml.safe_load(self.printed("--k8s", "--config", path, "--tag", "mine", "--set", f"disk.path={AWKWARD}"))["spec"]
        container, = spec["containers"]
        values = {variable["name"]: variable["value"].replace("$$", "$") for variable in container["env"]}
        self.assertEqual(values, {"LD_PRELOAD": OURS, "LOWTIDE_CONFIG": "/opt/lowtide/lowtide.toml",
                                  "LOWTIDE_CONF": f"disk.path:{AWKWARD}", "LOWTIDE_DEFAULT_TAG": "mine",
                                  "LOWTIDE_RUNTIME_DIR": self.runtime})
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        self.assertEqual(sorted(mounts), sorted(volumes))
        files = {mounts[name]["mountPath"]: volume["hostPath"] for name, volume in volumes.items() if "hostPath" in volume}
        self.assertEqual(files, {
            target: {"path": source, "type": "File"} for target, source in (
                ("/opt/lowtide/bin/lowtide", self.command), (OURS, self.library),
                ("/opt/lowtide/lib/liblowtide.so", self.state))})
        self.assertEqual(mounts["shm"]["mountPath"], "/dev/shm")
        self.assertEqual(volumes["shm"]["emptyDir"]["medium"], "Memory")
        self.assertEqual(mounts["lowtide-config"]["mountPath"], values["LOWTIDE_CONFIG"])
        self.assertEqual(volumes["lowtide-config"]["configMap"], {"name": "lowtide-config"})

    @unittest.skipUnless(yaml, "there is no YAML library (python3-yaml)")
    def test_a_dollar_in_a_pods_value_is_not_for_kubernetes_to_replace(self):
        spec = yaml.safe_load(self.printed("--k8s", "--set", "disk.path=/$(A)/$$b"))["spec"]
        values = {variable["name"]: variable["value"] for variable in spec["containers"][0]["env"]}
        self.assertEqual(values["LOWTIDE_CONF"], "disk.path:/$$(A)/$$$$b")

    def test_what_run_refuses_is_refused(self):
        for options, parts in ((("--set", "disk.path=/a,b"), ("a value with a comma",)),
                               (("--set", "gate.drian=1s"), ("did you mean gate.drain?",)),
                               (("--set", "gate.drain"), ("not KEY=VALUE",)),
                               (("--tag", "mine"), ("--set tag.mine.pause=offload",)),
                               (("--tag", ""), ("--tag needs",)),
                               (("--config", "/absent.toml"), ("/absent.toml: No such file",)),
                               (("--ray", "--docker"), ("--ray", "--docker"))):
            self.check_refused(self.env(*options), USAGE, *parts)
        error = self.env("--json", "--set", "gate.drain")
        self.assertEqual((error.returncode, json.loads(error.stdout)["error"]["exit_code"]), (USAGE, USAGE))

    def test_bytes_that_are_no_text_can_be_said_to_a_shell_only(self):
        path = os.fsencode(self.folder) + b"/\xff.toml"
        with open(path, "wb"):
            pass
        path = os.fsdecode(path)
        for form in ("--ray", "--k8s"):
            self.check_refused(self.env(form, "--set", "disk.path=" + path), USAGE, "not UTF-8")
        result = subprocess.run(["sh", "-c", 'eval "$("$0" env --config "$1")" && printf %s "$LOWTIDE_CONFIG"',
                                 self.command, path], env=self.environment, capture_output=True, check=True)
        self.assertEqual(result.stdout, os.fsencode(path))

    def test_a_path_that_docker_cannot_mount_is_refused(self):
        path = os.path.join(self.folder, "a:b.toml")
        with open(path, "w", encoding="utf-8"):
            pass
        self.check_refused(self.env("--docker", "--config", path), USAGE, "a:b.toml", "colon")

    def test_a_container_is_not_given_half_of_lowtide(self):
        os.unlink(self.state)
        for form in ("--docker", "--k8s"):
            self.check_refused(self.env(form), FAILED, "liblowtide.so is not installed")

    def test_nothing_is_made_or_changed_here(self):
        self.printed("--tag", "weights")
        self.assertFalse(os.path.exists(self.runtime))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # which says why a test was skipped
