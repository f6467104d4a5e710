"""`make audit-deps`: under which licences the packages of the lock are, and which of them have known advisories.

Licences are those that the packages declare. Advisories are requested from PyPI and of OSV through `pip-audit`; where
neither answers, nothing was checked, and this is reported: no package on PyPI carries a database that is kept (safety-db's
is of July 2021).
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

LOCK = Path("requirements-dev.lock")
DEADLINE_S = 600.0
SERVICES = ("pypi", "osv")
CLASSIFIER = "License :: "
TO_LOOK_AT = re.compile(r"\b(A?GPL|LGPL|SSPL|MPL|EUPL|proprietary|commercial|unknown)", re.IGNORECASE)
WORDS_MAX = 60
FOUND, UNCHECKED = 1, 2
"""What the command ends with when there are advisories, and when nobody could be asked."""


def locked(text: str) -> dict[str, str]:
    """Package → version."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


def licence_of(about: Any) -> str:
    """The declared licence: its expression, else its classifiers, else its free text."""
    if expression := about.get("License-Expression"):
        return str(expression)
    declared = [each for each in about.get_all("Classifier") or () if each.startswith(CLASSIFIER)]
    if declared:
        return ", ".join(sorted({each.rpartition(" :: ")[2] for each in declared}))
    words = (about.get("License") or "").strip().splitlines()
    return words[0][:WORDS_MAX] if words else "unknown"


def licences(names: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Licence → packages, and those that are not installed here."""
    found: dict[str, list[str]] = defaultdict(list)
    missing: list[str] = []
    for name in names:
        try:
            found[licence_of(metadata.metadata(name))].append(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    return dict(found), missing


def advisories(program: str, service: str) -> tuple[list[str], list[str]] | None:
    """(a line for each advisory, packages that could not be asked about); None: the service does not answer."""
    command = [
        program,
        "-r",
        str(LOCK),
        "--require-hashes",
        "--disable-pip",
        "-s",
        service,
        "-f",
        "json",
        "--progress-spinner",
        "off",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        return None
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    if len(skipped) == len(packages):
        return None
    lines = [
        f"{each['name']} {each['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version'}"
        for each in packages
        for hole in each.get("vulns", ())
    ]
    return lines, skipped


def main(argv: Sequence[str]) -> int:
    """0: all were asked about and none has one; 1: there are advisories; 2: not all could be asked about."""
    say = sys.stdout.write
    names = sorted(locked(LOCK.read_text()))
    found, missing = licences(names)
    for licence, packages in sorted(found.items()):
        mark = "look at it: " if TO_LOOK_AT.search(licence) else ""
        say(f"{mark}{licence}: {', '.join(packages)}\n")
    if missing:
        say(f"not installed here: {', '.join(missing)}\n")
    for service in SERVICES:
        answer = advisories(argv[0], service)
        if answer is None:
            say(f"\n{service} does not answer\n")
            continue
        lines, skipped = answer
        say(
            f"\n{service} knows {len(lines)} advisories of {len(names)} packages\n"
            + "".join(f"  {line}\n" for line in lines)
        )
        if skipped:
            say(f"not asked about: {', '.join(skipped)}\n")
        return FOUND if lines else UNCHECKED if skipped else 0
    say("no advisories were checked: neither PyPI nor OSV could be asked\n")
    return UNCHECKED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
