# SPDX-License-Identifier: Apache-2.0
"""Writes a package with an engine's interface, as its signatures were read, for tests: what Lowtide enters has the engine's
names and arguments, and does what the test says."""
import json
import pathlib
from typing import Dict

HERE = pathlib.Path(__file__).parent


def write(folder: pathlib.Path, signatures: str, bodies: Dict[str, str]) -> None:
    """`signatures` names a file beside this one; `bodies` are the bodies of functions by Class.function, or by .function of a
    module; without one they do nothing."""
    for module, classes in json.loads((HERE / signatures).read_text(encoding="utf-8")).items():
        path = folder / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["import contextlib"]
        for name, functions in classes.items():
            indent = "    " if name else ""
            lines += ["", f"class {name}:", f"    {bodies.get(name, 'pass')}"] if name else [""]
            for function, (kind, arguments) in functions.items():
                body = bodies.get(f"{name}.{function}", "yield" if kind == "contextmanager" else "pass")
                decorator = {"": [], "contextmanager": ["@contextlib.contextmanager"]}.get(kind, [f"@{kind}"])
                code = [*decorator, f"def {function}({arguments}):", *("    " + line for line in body.splitlines())]
                lines += [indent + line for line in code]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for package in {parent for path in folder.rglob("*.py") for parent in path.parents if folder in parent.parents}:
        (package / "__init__.py").touch()
