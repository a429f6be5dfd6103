# SPDX-License-Identifier: Apache-2.0
"""Whether the interfaces that the stand-ins have are those of the engines that are installed here."""
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent / "engines"
sys.path.insert(0, str(HERE))

import signatures  # noqa: E402


class Installed(unittest.TestCase):

    def compare(self, engine):
        """With the newest version that is known and not newer than the installed one."""
        found = importlib.util.find_spec(engine)
        if found is None or not found.submodule_search_locations:
            self.skipTest(f"{engine} is not installed")
        version = importlib.metadata.version(engine)
        known = sorted((_numbers(path.stem.partition("-")[2]), path) for path in HERE.glob(f"{engine}-*.json"))
        fitting = [path for numbers, path in known if numbers <= _numbers(version)] or [known[0][1]]
        there = signatures.read(engine, pathlib.Path(next(iter(found.submodule_search_locations))).parent)
        self.assertEqual(json.loads(fitting[-1].read_text(encoding="utf-8")), there, f"{engine} {version}, {fitting[-1].name}")


def _numbers(version):
    return [int(part) for part in version.split(".")[:3] if part.isdigit()]


for _engine in signatures.PLACES:
    setattr(Installed, f"test_{_engine}", lambda self, engine=_engine: self.compare(engine))

if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(77 if len(result.skipped) == result.testsRun else not result.wasSuccessful())
