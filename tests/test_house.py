"""The rules of the repository that no linter checks (CONTRIBUTING.md): modules, names, operations, routes."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import moorage
import moorage.api.version_changes
import moorage.conductor.reconcilers
from moorage.__main__ import COMMANDS
from moorage.api.context import ApiSettings, AppContext
from moorage.api.http_errors import STATUS
from moorage.api.route_table import TABLE
from moorage.api.version_changes import CHANGES
from moorage.model.errors import Problem
from moorage.model.server import VmState
from moorage.model.server_transitions import MAY_BECOME
from moorage.operations.notifications.event_map import EVENT_SOURCES, WITHOUT_NOTIFICATIONS
from moorage.operations.registry import SAGAS
from moorage_testing.documented_errors import raising
from tests.helpers.repository import PACKAGES, ROOT, SOURCE, modules

LINES_MAX = 400
"""Of a file of the source or of the tests."""
OPEN_ROUTES = {
    "POST /os-baremetal-nodes": "400, whoever asks",
    "DELETE /os-baremetal-nodes/{id}": "400, whoever asks",
    "action:add_interface": "400, whoever asks",
    "action:remove_interface": "400, whoever asks",
    "GET /flavors": "everybody with a token may list the public flavors, as in Nova",
    "action:resetNetwork": "410, whoever asks",
    "action:os-getRDPConsole": "400, whoever asks",
}
"""Routes that ask no policy rule, and why."""
OPEN_MODULES = {
    "moorage.api.removed_routes": "says that something is gone, or not built, whoever asks",
    "moorage.api.compute.extensions": "documents without data of anybody",
    "moorage.api.compute.images": "passed on with the user's token: the image service's policy is asked, as in Nova",
    "moorage.api.compute.image_metadata": "the same",
}
ASKS_POLICY = frozenset({"require", "allows"})
LOOKED_THROUGH = 5
"""How many calls deep a handler is read."""
NAMED_BY_OTHERS = frozenset({"Driver"})
"""Cinder loads `cinder_files.Driver` by its name."""
CONTEXT_VARIABLES = frozenset({"model/task_context.py", "model/tracing.py", "main/observability/tracing.py"})
"""Where context variables are declared: all that packages share stand in the first."""


# ------------------------------------------------------------------------------------------------------- modules


def test_every_module_has_a_docstring() -> None:
    every = [*modules(), *(ROOT / "tests").rglob("*.py")]
    silent = [str(each.relative_to(ROOT)) for each in every if not ast.get_docstring(ast.parse(each.read_text()))]
    assert not silent


def test_no_file_is_too_long_to_have_one_subject() -> None:
    every = [*modules(), *(ROOT / "tests").rglob("*.py")]
    long = {
        str(each.relative_to(ROOT)): lines
        for each in every
        if (lines := len(each.read_text().splitlines())) > LINES_MAX
    }
    assert not long


def test_the_packages_of_the_repository_have_one_version() -> None:
    for package in PACKAGES:
        project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
        assert project["version"] == moorage.__version__
        assert f"moorage=={moorage.__version__}" in project["dependencies"]


def test_every_command_has_an_entry() -> None:
    for module, says in COMMANDS.values():
        assert callable(importlib.import_module(module).main)
        assert says


# ---------------------------------------------------------------------------------------------------- operations


def test_every_saga_is_proved() -> None:
    """The scenarios of the proof are keyed by saga, and every saga is in them."""
    proof = importlib.util.find_spec("tests.sagas.test_operations_proof")
    text = Path(proof.origin if proof and proof.origin else ROOT / "tests/sagas/test_operations_proof.py").read_text()
    keys = {
        key.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    assert set(SAGAS) <= keys
    assert "@every_saga(SAGAS, " in text


def test_every_step_has_an_undo_or_a_reason_without() -> None:
    for saga in SAGAS.values():
        for step in saga.steps:
            assert (step.undo_with is not None) != bool(step.no_undo), f"{saga.name}: {step.name}"


def test_every_saga_has_notifications_or_a_reason_without() -> None:
    """Its entry is in operations/notifications/event_map.py; and there is one way to accept an operation, which tells of it."""
    assert {name.partition("/")[0] for name in SAGAS} == EVENT_SOURCES.keys() | WITHOUT_NOTIFICATIONS.keys()
    accepting = [
        path.name for path in (SOURCE / "operations").rglob("*.py") if "operations.accept(" in path.read_text()
    ]
    assert accepting == ["accept.py"]


def test_every_state_of_a_server_knows_what_it_may_become() -> None:
    assert set(MAY_BECOME) == set(VmState)
    assert not MAY_BECOME[VmState.DELETED]
    assert all(VmState.DELETED in after for state, after in MAY_BECOME.items() if state is not VmState.DELETED)


# -------------------------------------------------------------------------------------------------- the API


def kinds(root: type[Problem]) -> Iterator[type[Problem]]:
    yield root
    for each in root.__subclasses__():
        yield from kinds(each)


def test_every_kind_of_problem_has_a_status() -> None:
    """All of the public tree; what a room keeps for itself must never reach the API."""
    for module in pkgutil.walk_packages(moorage.__path__, "moorage."):
        if module.name.startswith("moorage.model"):
            importlib.import_module(module.name)
    public = {each for each in kinds(Problem) if each.__module__ == "moorage.model.errors"}
    assert public == {each for each in STATUS if each.__module__ == "moorage.model.errors"}


def names_in(code: CodeType) -> set[str]:
    """Every name a piece of code speaks, its inner functions' too."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= names_in(constant)
    return found


def asks_policy(function: Any, depth: int = LOOKED_THROUGH) -> bool:
    """Does it, or something of the API that it calls, ask the policy?"""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or depth == 0:
        return False
    names = names_in(function.__code__)
    if names & ASKS_POLICY:
        return True
    inner = [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not None]
    inner += [function.__globals__[name] for name in names if name in function.__globals__]
    inner += [
        getattr(module, name)
        for module in function.__globals__.values()
        if inspect.ismodule(module) and module.__name__.startswith("moorage.api")
        for name in names
        if hasattr(module, name)
    ]
    return any(asks_policy(each, depth - 1) for each in inner if inspect.isfunction(each))


@pytest.mark.parametrize("route", TABLE, ids=lambda route: route.key)
def test_every_route_asks_the_policy(route: Any) -> None:
    if route.rule is not None or route.handler.__module__ in OPEN_MODULES:
        return
    if any(route.key.endswith(each) for each in OPEN_ROUTES):
        return
    assert asks_policy(route.handler), f"{route.key} asks no policy rule"


def keys_of(path: Path, name: str) -> Iterator[Any]:
    """The keys of a dict that a file assigns to a name, without importing the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            value = getattr(node, "value", None)
            yield from (ast.literal_eval(key) for key in getattr(value, "keys", []) if key is not None)


def test_every_change_has_an_exchange() -> None:
    """Its file is in tests/golden/exchanges, or a table of tests/api says where else it is proved."""
    elsewhere = {
        key if isinstance(key, tuple) else (2, key)
        for table in sorted((ROOT / "tests").glob("*/*exchanges.py"))
        for key in keys_of(table, "PROVED_ELSEWHERE")
    }
    shown = {path.stem for path in (ROOT / "tests/golden/exchanges").glob("*.json")}
    missing = {
        f"{kind}{at[0]}.{at[1]:03}"
        for module in pkgutil.iter_modules(moorage.api.version_changes.__path__)
        for at in [tuple(int(part) for part in module.name[1:].split("_")[:2])]
        for kind in ["servers-" if module.name.endswith("_servers") else ""]
        if at not in elsewhere
    }
    assert len(missing) > len(CHANGES) // 2
    assert sorted(missing - shown) == []


# ------------------------------------------------------------------------------------------------- the conductor


def test_every_reconciler_has_a_round_with_nothing_to_do() -> None:
    names = {each.name for each in pkgutil.iter_modules(moorage.conductor.reconcilers.__path__)}
    text = "".join(each.read_text() for each in (ROOT / "tests/sagas").glob("test_*.py"))
    tested = set(re.findall(r"async def test_(\w+)_already_fine\(", text))
    assert names <= tested


# ---------------------------------------------------------------------------------------------------------- names


PRIVATE_WORDS = re.compile(
    r"(?:^|_)(?:tells?|told|telling|says?|said|saying|hears?|heard|hearing|looks?|looked|looking|glances?|beside|herald"
    r"|ears|scribe|doors?|doorway|nouns?|story|stories|tellers?|desks?|neighbours?|askers?|asked|errand|picture|words?"
    r"|worded|obeys?|heeds?|welcome|foreseen|lets?_go|at_hand|brings?|mends?|mended|whole|who|whom|nobody|kept)(?:_|$)"
)
NAMED_FOR_GOOD = {
    "PictureHint": "a message: its golden file has this name",
    "a_guest_is_asked_while_something_fails": "a scene of the simulation: plans name it",
    "a_neighbour_fails_in_a_life": "the same",
    "a_neighbour_or_a_store_fails_in_a_move": "the same",
    "a_round_looks_during_an_attach": "the same",
    "neighbour": "a fault of the simulation: plans name it",
}


PRIVATE_VARIABLES = re.compile(
    r"^_*(?:here|there|was|some|seen)$"
    r"|(?:^|_)(?:tells?|told|telling|says?|said|saying|hears?|heard|hearing|asked|asking|nouns?|who|whom)(?:_|$)"
)


def names_of(path: Path) -> Iterator[str]:
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def variables_of(path: Path) -> Iterator[str]:
    """Variables, parameters and attributes of `self`. Fields of a class are not among them: they are stored and sent."""
    tree = ast.parse(path.read_text())
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in fields:
                yield name
            case _:
                pass


def test_a_class_name_stands_once() -> None:
    """Two things with one name are taken for one another. Names that begin with an underscore are their module's own."""
    places: dict[str, list[str]] = {}
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "packages").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in NAMED_BY_OTHERS:
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_names_are_the_fields_terms() -> None:
    """Modules, classes and functions; docs/decisions/0026 has what the old words mean."""
    every = [*SOURCE.rglob("*.py"), *(ROOT / "packages").rglob("*.py")]
    private = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in every
        if "revisions" not in path.parts
        for name in names_of(path)
        if name not in NAMED_FOR_GOOD and PRIVATE_WORDS.search(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())
    }
    assert private == set()


def test_a_variable_is_named_for_what_it_holds() -> None:
    """`report`, `settings` and `listeners` need no look at the line that fills them; `told`, `said` and `telling` do."""
    private = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCE.rglob("*.py")
        if "revisions" not in path.parts
        for name in variables_of(path)
        if PRIVATE_VARIABLES.search(name)
    }
    assert private == set()


# -------------------------------------------------------------------------------------------------------- errors


def test_docstrings_name_the_errors_that_functions_raise() -> None:
    missing = {each.key for each in raising(ROOT, [SOURCE, *PACKAGES]) if each.missing}
    assert missing == set(), "name the errors in the docstring: Raises NotFound when …"


def test_context_variables_are_declared_in_one_place() -> None:
    declared = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "ContextVar(" in path.read_text("utf-8")
    }
    assert declared == CONTEXT_VARIABLES


def test_every_part_of_the_application_context_has_a_type() -> None:
    for declared in (AppContext, ApiSettings):
        assert [each.name for each in dataclasses.fields(declared) if "Any" in str(each.type)] == []
