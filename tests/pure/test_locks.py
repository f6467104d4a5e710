"""Packages are installed by hash: the locks contain what pyproject.toml requires, in the versions of constraints.txt."""

import json
import re
import subprocess
import tomllib
from email.message import Message
from pathlib import Path

import pytest

from moorage_testing import audit_deps
from moorage_testing.audit_deps import FOUND, UNCHECKED, licence_of, locked, main

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BUILT_HERE = "libvirt"
"""Needs headers of the machine's own libvirt: whoever wants it installs it beside."""
DEV = [name for name in EXTRAS if name not in {"build", "client", BUILT_HERE}]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(*extras: str) -> set[str]:
    said = [*PROJECT["dependencies"], *(each for extra in extras for each in EXTRAS[extra])]
    return {plain(re.match(r"[A-Za-z0-9._-]+", each)[0]) for each in said}  # type: ignore[index]


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.lock", ["build", "client"]), ("requirements-dev.lock", ["build", "client", *DEV])],
)
def test_the_lock_contains_all_requirements(lock: str, extras: list[str]) -> None:
    text = (ROOT / lock).read_text()
    versions = {plain(name): version for name, version in locked(text).items()}
    assert wanted(*extras) - versions.keys() == set(), "run `make lock`"
    pinned = {plain(name): version for name, version in locked((ROOT / "constraints.txt").read_text()).items()}
    differ = {
        name: (version, pinned[name]) for name, version in versions.items() if pinned.get(name, version) != version
    }
    assert differ == {}, "run `make lock`"
    for requirement in re.split(r"\n(?=[A-Za-z0-9])", text.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", requirement), requirement.splitlines()[0]
    assert "://" not in text, "who installs says from where"


def test_the_makefile_installs_nothing_without_a_hash() -> None:
    installs = [line for line in (ROOT / "Makefile").read_text().splitlines() if "python $(PIP)" in line]
    for line in installs:
        assert "--require-hashes" in line or "$(WITHOUT_DEPS)" in line or "/tools/" in line, line
    assert len(installs) == 6


# -------------------------------------------------------------------------------------------------- make audit-deps


def test_a_licence_is_what_the_package_declares() -> None:
    about = Message()
    assert licence_of(about) == "unknown"
    about["License"] = "MIT\nand more"
    assert licence_of(about) == "MIT"
    about["Classifier"] = "License :: OSI Approved :: Apache Software License"
    assert licence_of(about) == "Apache Software License"
    about["License-Expression"] = "Apache-2.0"
    assert licence_of(about) == "Apache-2.0"


HOLE = {"id": "PYSEC-1", "fix_versions": ["2.0"]}


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        ([{"name": "alembic", "version": "1", "vulns": []}], 0, "pypi knows 0 advisories"),
        ([{"name": "alembic", "version": "1", "vulns": [HOLE]}], FOUND, "alembic 1: PYSEC-1, mended in 2.0"),
        (
            [{"name": "alembic", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}],
            UNCHECKED,
            "not asked about: b",
        ),
        ([{"name": "b", "skip_reason": "not found"}], UNCHECKED, "no advisories were checked"),
        (None, UNCHECKED, "no advisories were checked"),
    ],
)
def test_unchecked_packages_are_reported(
    told: object, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = "" if told is None else json.dumps({"dependencies": told})
    monkeypatch.setattr(audit_deps.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 1, answer, ""))
    monkeypatch.setattr(audit_deps, "LOCK", ROOT / "requirements-dev.lock")
    assert main(["pip-audit"]) == code
    assert said in capsys.readouterr().out
