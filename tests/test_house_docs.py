"""The rules of the repository that no linter checks: links, files and settings that the documentation names, and the Makefile."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from moorage.main.config import Config
from moorage.main.schemas import CELL, PLACEMENT, REGION
from moorage.operations.registry import SAGAS
from tests.helpers.repository import PACKAGES, ROOT, SOURCE, modules


def tracked() -> list[Path]:
    """Every file of the repository that is text."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = [ROOT / name for name in listed.stdout.splitlines()]
    return [each for each in found if each.is_file() and each.suffix not in {".png", ".ico", ".db"}]


# --------------------------------------------------------------------------------------------------------- papers


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """As the usual renderers make them of headings."""
    heads = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_resolves(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name} links to {target}: there is no such heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A path in backquotes is one in the repository, or below `src/moorage` or another package."""
    if page.name == "CHANGELOG.md":
        return
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for name in re.findall(r"`([\w./-]+\.(?:py|md|sql|toml))`", text):
        if (
            "/" in name
            and "NNN" not in name
            and not any(root.joinpath(name).exists() for root in (ROOT, SOURCE, *PACKAGES, page.parent))
        ):
            raise AssertionError(f"{page.relative_to(ROOT)} speaks of {name}, which is not there")


def test_the_walk_names_every_step_of_a_boot() -> None:
    text = (ROOT / "docs/walk.md").read_text()
    for step in SAGAS["boot/1"].steps:
        assert f"`{step.name}`" in text, f"name the step `{step.name}` in docs/walk.md, where a boot takes it"


def test_rules_that_the_source_speaks_of_are_there() -> None:
    heads = set(re.findall(r"^## §(\d+) ", (ROOT / "docs/rules.md").read_text(), re.MULTILINE))
    for path in modules():
        for place in re.findall(r"RULES ((?:§\d+(?:, | to | and )?)+)", path.read_text()):
            assert set(re.findall(r"\d+", place)) <= heads, f"{path.name} speaks of RULES {place}"


def settings_of(struct: type[msgspec.Struct], above: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from settings_of(field.type, f"{above}{field.encode_name}.")
        else:
            yield f"{above}{field.encode_name}"


MARK = re.compile(r"(?<![\w%.-])(?:S[0-4]\.\d{1,2}|N\d{1,2}|C13|D[1-9]|P\d{1,2})(?![\w%.]\w|\w)")
"""A requirement, as source, tests and pages name it."""


def test_requirements_that_the_source_speaks_of_are_there() -> None:
    text = (ROOT / "docs/requirements.md").read_text()
    known = set(MARK.findall(text))
    for head, first, last in re.findall(r"\| (S\d\.|P)(\d+) to (?:S\d\.|P)(\d+) \|", text):
        known |= {f"{head}{number}" for number in range(int(first), int(last) + 1)}
    for path in (*modules(), *(ROOT / "tests").rglob("*.py"), *pages()):
        spoken = set(MARK.findall(path.read_text()))
        assert spoken <= known, f"docs/requirements.md does not say what {spoken - known} of {path.name} ask"


def test_every_setting_is_in_the_reference() -> None:
    text = (ROOT / "docs/operating/run.md").read_text()
    names = {name.rpartition(".")[2] for name in settings_of(Config)}
    absent = [name for name in names if f"`{name}`" not in text and f"`[[{name}]]`" not in text]
    assert not absent, "a setting of main/config.py belongs into the table of docs/operating/run.md"


def test_every_table_has_its_bound_in_the_reference() -> None:
    text = (ROOT / "docs/operating/limits.md").read_text()
    tables = {table for tree in (REGION, PLACEMENT, CELL) for table in tree.metadata.tables}
    absent = sorted(each for each in tables if f"`{each}`" not in text)
    assert len(tables) > 30, (
        "fewer tables than there are: name in this test the schemas (`main/schemas.py`) that hold them"
    )
    assert not absent, "a table of the region or of a cell belongs into docs/operating/limits.md, with what bounds it"


# -------------------------------------------------------------------------------------------------- the Makefile


def test_make_help_names_targets_that_are_there() -> None:
    text = (ROOT / "Makefile").read_text()
    helped = set(re.findall(r"^([a-z-]+):.*?## ", text, re.MULTILINE))
    wanted = {"up", "demo", "test", "check", "prove", "bless", "why", "bench"}
    assert wanted <= helped, f"give these targets of the Makefile a `## ` line: {sorted(wanted - helped)}"
    for page in pages():
        for target in re.findall(r"`make ([a-z-]+)", page.read_text()):
            assert re.search(rf"^{target}:", text, re.MULTILINE), f"{page.name} speaks of make {target}"
    called = re.findall(r"^part .*?\bmake ([a-z -]+?)(?= ARGS| 2>|$)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert len(called) >= 4, "what .ci/run calls is found"
    for target in called:
        assert set(target.split()) <= set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


FORBIDDEN = ("/wor" + "k/", "TO" + "DO", "FIX" + "ME", "X" + "XX")


def test_nothing_is_left_for_later_and_no_machine_is_named() -> None:
    pattern = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in FORBIDDEN[1:]))
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if FORBIDDEN[0] in text or pattern.search(text):
            found.append(str(path.relative_to(ROOT)))
    assert not found, f"remove {FORBIDDEN} from these files: do it now, or say what is not built: {found}"
