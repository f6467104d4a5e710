"""The files of this repository, for the tests of its rules."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "moorage"
PACKAGES = (ROOT / "packages" / "embedded", ROOT / "packages" / "testing")
"""Of this repository too, and not needed by the roles of a cloud."""


def modules() -> list[Path]:
    return sorted(path for root in (SOURCE, *PACKAGES) for path in root.rglob("*.py"))
