# SPDX-License-Identifier: Apache-2.0
"""habits.py lengths|licences|links|machine_paths|--self-test: what every file of the project keeps to."""

import ast
import re
import sys

import repository

LONGEST_FILE = 400
LONGEST_FUNCTION = 40


def is_script(path):
    return "." not in path.rsplit("/", 1)[-1] and repository.read(path).startswith("#!")


def code_files():
    return [path for path in repository.files() if path.endswith(repository.CODE)]


def cpp_functions(text):
    """(line, number of lines) of every function body that stands in a namespace, a class or at file level."""
    code = repository.without_comments(text, strings=False)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: "\n" * match.group(0).count("\n"), code, flags=re.MULTILINE)
    open_blocks, head = [], 0
    for at, sign in enumerate(code):
        if sign == ";" or sign == ":" and code[head:at].strip() in ("public", "private", "protected"):
            head = at + 1
        elif sign == "{":
            declared = code[head:at].strip()
            inside = any(kind == "function" for kind, _ in open_blocks)
            scope = re.match(r"(?:template\s*<.*>\s*)?(?:inline )?(?:namespace|class|struct|union|enum|extern)\b", declared, re.DOTALL)
            kind = "scope" if scope and not inside and not declared.endswith(")") else "block"
            if kind == "block" and "(" in declared and not inside:
                kind = "function"
            open_blocks.append((kind, head + len(code[head:at]) - len(code[head:at].lstrip())))
            head = at + 1
        elif sign == "}" and open_blocks:
            kind, start = open_blocks.pop()
            if kind == "function":
                yield code.count("\n", 0, start) + 1, code.count("\n", start, at) + 1
            head = at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def too_long(path, text):
    lines = text.count("\n")
    if lines >= LONGEST_FILE:
        yield f"{path}: {lines} lines; files have fewer than {LONGEST_FILE}"
    functions = python_functions if path.endswith(".py") else cpp_functions
    # A test tells one story from its start to its end.
    if path.endswith((".cpp", ".hpp", ".py")) and not path.startswith("tests/"):
        for line, length in functions(text):
            if length >= LONGEST_FUNCTION:
                yield f"{path}:{line}: a function of {length} lines; functions have fewer than {LONGEST_FUNCTION}"


def lengths():
    return [line for path in code_files() for line in too_long(path, repository.read(path))]


def licences():
    scripts = [path for path in repository.files() if path.endswith(("CMakeLists.txt", ".sh", ".map")) or is_script(path)]
    return [f"{path}: no SPDX-License-Identifier in its first two lines" for path in code_files() + scripts
            if "SPDX-License-Identifier: Apache-2.0" not in "".join(repository.read(path).splitlines(True)[:2])]


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(path, text):
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        page = (repository.ROOT / path).parent / file if file else repository.ROOT / path
        if not page.exists():
            yield f"{path}: the link {target} leads nowhere"
        elif anchor and anchor not in anchors(page.read_text(encoding="utf-8")):
            yield f"{path}: the link {target} names no heading there"
    for named in re.findall(r"`((?:allocator|backends|shim|tools|tests|docs)/[\w./-]+\.(?:[ch]pp|h|def|py|md))`", prose):
        if not (repository.ROOT / named).exists():
            yield f"{path}: there is no {named}"


def links():
    return [line for path in repository.files() if path.endswith(".md") for line in dead_links(path, repository.read(path))]


def names_a_machine(text):
    """Lines that only make sense on one person's machine."""
    folders = "|".join(("work", "home/[a-z]", "root", "Users"))
    return [line.strip() for line in text.splitlines() if re.search(rf"(?<![\w.~%}}/-])/(?:{folders})[\w.-]*/", line)]


def machine_paths():
    kinds = repository.CODE + (".md", ".txt", ".json", ".toml", ".sh", ".cmake")
    return [f"{path}: {line}" for path in repository.files() if path.endswith(kinds) or is_script(path)
            for line in names_a_machine(repository.read(path))]


def self_test():
    """What should be found in planted text, and is not."""
    body = "  int a;\n" * LONGEST_FUNCTION
    function = f"namespace n {{\nclass C {{\n public:\n  template <class T>\n  int f(int a) const noexcept {{\n{body}  }}\n}};\n}}\n"
    planted = {
        "a long function": list(too_long("x.cpp", function)),
        "a long file": list(too_long("x.hpp", "\n" * LONGEST_FILE)),
        "a long Python function": list(too_long("x.py", "def f():\n" + "  a = 1\n" * LONGEST_FUNCTION)),
        "a dead link": list(dead_links("README.md", "[x](docs/nowhere.md)")),
        "a dead anchor": list(dead_links("README.md", "# A b\n[x](#a-c)")),
        "a file that is not there": list(dead_links("README.md", "`allocator/nothing.hpp`")),
        "a machine's path": names_a_machine("open('" + "/".join(("", "home", "me", "x")) + "')"),
    }
    missed = [f"not found: {what}" for what, found in planted.items() if len(found) != 1]
    harmless = list(cpp_functions("enum class E : int { a, b };\nconst int t[] = {f(1),\n2};\n"))
    return missed + [f"taken for a function: {found}" for found in harmless if found[1] > 2]


def main():
    checks = {"lengths": lengths, "licences": licences, "links": links, "machine_paths": machine_paths,
              "--self-test": self_test}
    return repository.report(checks[sys.argv[1]]())


sys.exit(main())
