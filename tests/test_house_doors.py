"""Every page of the documentation is on its first page, `docs/README.md`, exactly once."""

import re
from collections import Counter

from tests.helpers.repository import ROOT

DOCS = ROOT / "docs"
DOOR = DOCS / "README.md"
SECTIONS = ["Learn", "Do", "Look up", "Understand"]


def linked() -> Counter[str]:
    targets = re.findall(r"\]\(([^)#]+)", DOOR.read_text())
    return Counter(targets)


def test_every_page_is_linked_once() -> None:
    """Decisions are one list, which their folder is."""
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page != DOOR}
    wanted = {page for page in pages if not page.startswith("decisions/")} | {"decisions/"}
    found = linked()
    missing = sorted(wanted - set(found))
    assert not missing, f"add a link to each of these to one section of docs/README.md: {missing}"
    twice = sorted(page for page, times in found.items() if times > 1)
    assert not twice, f"keep one link to each of these in docs/README.md, where a reader looks first: {twice}"
    unknown = sorted(set(found) - wanted)
    assert not unknown, f"docs/README.md links what is no page under docs; remove or correct: {unknown}"


def test_the_sections_are_the_four() -> None:
    heads = re.findall(r"^## (.+)$", DOOR.read_text(), re.MULTILINE)
    assert heads == SECTIONS, (
        f"docs/README.md has the sections {SECTIONS}; put the page under one of them instead of {heads}"
    )
