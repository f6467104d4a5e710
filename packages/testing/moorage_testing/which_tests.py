"""`make which-tests FILE=…`: the tests of a source file; and of a test file, the source files that it tests.

By name first (`test_flavors.py` tests `flavors.py`), then by imports: a test tests the modules that it imports itself, or that a module of `tests.helpers` imports for it. A file that no
test imports (a step, a handler) is tested through what imports it: then those tests are listed, nearest first.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOTS = {"src": "moorage", "packages/embedded": "moorage_embedded", "packages/testing": "moorage_testing", ".": "tests"}
DEPTH_MAX = 4
"""How many imports away a test may be from the file."""
LISTED_MAX = 40


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, package in ROOTS.items():
        base = root / folder
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imports(path: Path, known: Mapping[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return {each for each in found if each in known}


@cache
def _repository(root: Path) -> tuple[dict[str, Path], dict[str, set[str]]]:
    """Each module's file, and what it imports; to parse them all takes seconds."""
    known = dict(_modules(root))
    return known, {each: _imports(path, known) for each, path in known.items()}


def find_tests(root: Path, file: Path) -> list[str]:
    """Paths below `root`, nearest first. Raises LookupError when the file is not a module of this repository."""
    known, imports = _repository(root)
    name = next((each for each, path in known.items() if path == file.resolve()), None)
    if name is None:
        raise LookupError(f"{file} is not a Python file of src, packages or tests")
    if name.rpartition(".")[2].startswith("test_"):
        return [str(known[each].relative_to(root)) for each in _sources_of(name, known, imports)]
    stem = name.rpartition(".")[2]
    named = [path for each, path in known.items() if re.fullmatch(rf"test_{stem}(_\w+)?", each.rpartition(".")[2])]
    near, seen, listed = {name}, {name}, [str(each.relative_to(root)) for each in named]
    for _ in range(DEPTH_MAX):
        near = {each for each, wants in imports.items() if wants & near} - seen
        seen |= near
        found = sorted(str(known[each].relative_to(root)) for each in near if ".test_" in each)
        listed += [each for each in found if each not in listed]
        if found:
            break
    return listed


def _sources_of(name: str, known: Mapping[str, Path], imports: Mapping[str, set[str]]) -> list[str]:
    """Of a test: sources whose name its own begins with, then those that it or the test modules it imports import."""
    subject = name.rpartition(".")[2].removeprefix("test_")
    sources = [each for each in known if not each.startswith("tests") and not known[each].name.startswith("__")]
    named = [each for each in sources if re.match(rf"{each.rpartition('.')[2]}(?:_|$)", subject)]
    near, seen = {name}, {name}
    while near := {each for module in near for each in imports[module] if each.startswith("tests")} - seen:
        seen |= near
    imported = sorted({each for module in seen for each in imports[module] if each in set(sources)})
    return [*named, *(each for each in imported if each not in named)]


def main(arguments: list[str]) -> int:
    """0; 2 with a sentence when the file is not known."""
    if len(arguments) != 1:
        sys.stderr.write("usage: make which-tests FILE=src/moorage/…/file.py\n")
        return 2
    try:
        found = find_tests(Path.cwd(), Path(arguments[0]))
    except LookupError as unknown:
        sys.stderr.write(f"{unknown}\n")
        return 2
    sys.stdout.write(
        "".join(f"{each}\n" for each in found) or "no test imports it, directly or through what imports it\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
