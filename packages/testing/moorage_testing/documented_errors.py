"""Finds public functions that raise an error which their docstring does not name.

`python -m moorage_testing.documented_errors [PART OF A PATH]` counts them for each package and lists them;
tests/test_house.py compares them with a list that may only become shorter.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

Function = ast.FunctionDef | ast.AsyncFunctionDef
NOT_NAMED = frozenset({"AssertionError", "NotImplementedError"})
"""Errors of the programmer: no caller handles them."""


class Raising(msgspec.Struct, frozen=True):
    """A public function or method with a `raise` of its own."""

    path: str
    """Relative to the root that was searched."""
    function: str
    """Its name, with those of its classes."""
    line: int
    raised: frozenset[str]
    """The names of the exception classes."""
    missing: frozenset[str]
    """Those of `raised` that the docstring does not name."""

    @property
    def key(self) -> str:
        return f"{self.path}: {self.function}: {', '.join(sorted(self.missing))}"


def raising(root: Path, folders: Sequence[Path]) -> Iterator[Raising]:
    """Yields every public function below the folders that raises, in the order of paths and lines."""
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(root).as_posix()
            for function, node in _public_functions(ast.parse(path.read_text("utf-8"))):
                if raised := frozenset(_raised(node.body, frozenset())) - NOT_NAMED:
                    text = ast.get_docstring(node) or ""
                    missing = frozenset(each for each in raised if each not in _identifiers(text))
                    yield Raising(path=name, function=function, line=node.lineno, raised=raised, missing=missing)


def _identifiers(text: str) -> set[str]:
    return set("".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split())


def _public_functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Those of the module and of its public classes, without functions inside functions."""
    pending: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    while pending:
        prefix, body = pending.pop(0)
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                pending.append((f"{prefix}{node.name}.", node.body))
            elif isinstance(node, Function) and not node.name.startswith("_"):
                yield f"{prefix}{node.name}", node


def _raised(body: Sequence[ast.AST], caught: frozenset[str]) -> Iterator[str]:
    """Names of the exception classes that are raised and not caught by the function itself."""
    for node in body:
        if isinstance(node, ast.Raise):
            name = _class_name(node.exc)
            if name and name not in caught:
                yield name
        elif isinstance(node, ast.Try | ast.TryStar):
            handled = {name for each in node.handlers for name in _handled(each.type)}
            yield from _raised(node.body, caught | handled)
            yield from _raised([*node.handlers, *node.orelse, *node.finalbody], caught)
        elif not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            yield from _raised(list(ast.iter_child_nodes(node)), caught)


def _class_name(raised: ast.expr | None) -> str | None:
    """The class of `raise Name(…)`, `raise module.Name(…)` or `raise Name`; None where a variable is raised."""
    if isinstance(raised, ast.Call):
        raised = raised.func
    if isinstance(raised, ast.Attribute):
        name = raised.attr
    elif isinstance(raised, ast.Name):
        name = raised.id
    else:
        return None
    return name if name[:1].isupper() else None


def _handled(caught: ast.expr | None) -> Iterator[str]:
    for each in caught.elts if isinstance(caught, ast.Tuple) else [caught] if caught else []:
        if name := _class_name(each):
            yield name


def main(arguments: Sequence[str]) -> int:
    """Prints the functions that do not name their errors, and the counts of each package; returns the status."""
    root = Path.cwd()
    found = list(raising(root, [root / "src" / "moorage", root / "packages"]))
    wanted = arguments[0] if arguments else ""
    for each in found:
        if each.missing and wanted in each.path:
            sys.stdout.write(f"{each.path}:{each.line}: {each.function}: {', '.join(sorted(each.missing))}\n")
    counts: dict[str, list[int]] = {}
    for each in found:
        parts = each.path.split("/")
        package = counts.setdefault("/".join(parts[:3] if parts[0] == "src" else parts[:2]), [0, 0])
        package[0] += 1
        package[1] += not each.missing
    for package_name, (number, named) in sorted(counts.items()):
        sys.stdout.write(f"{package_name}: {named} of {number}\n")
    total = sum(not each.missing for each in found)
    sys.stdout.write(f"{total} of {len(found)} public functions that raise name their errors\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
