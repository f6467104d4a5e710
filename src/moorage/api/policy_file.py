"""An operator's policy file, read so that a mistake is said and never obeyed in part.

oslo.policy lets a misspelt name pass: the rule that was to be tightened stays as it was. And what it cannot parse refuses everybody.
Here both end the start, with the line at fault. Rules that a file defines for itself (`rule:operators`) are fine.
"""

import difflib
import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_policy import _checks, _parser
from oslo_policy import policy as oslo

log = logging.getLogger(__name__)


def read_overrides(path: str, known: Mapping[str, str]) -> dict[str, str]:
    """What the file says over the `known` rules. Raises ValueError, in a sentence, when it cannot be read or obeyed."""
    try:
        overrides: Any = oslo.parse_file_contents(Path(path).read_text())
    except (OSError, ValueError) as failure:
        raise ValueError(f"the policy file {path} cannot be read: {failure}") from failure
    if not isinstance(overrides, dict):
        raise ValueError(f"the policy file {path} is no list of rules, each with a name and a check")
    where = f"the policy file {path}"
    for name, text in overrides.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError(f"{where}: the check of {name} is no text such as 'role:admin'")
    everything = {**known, **overrides}
    used: set[str] = set()
    for name, text in overrides.items():
        check: Any = _parser.parse_rule(text)
        if isinstance(check, _checks.FalseCheck) and text.strip() != "!":
            raise ValueError(f"{where}: the check of {name} cannot be understood: {text}")
        for other in _named(check):
            used.add(other)
            if other not in everything:
                raise ValueError(f"{where}: the check of {name} names a rule that there is not: {other}")
    services = {name.partition(":")[0] for name in known if ":" in name}
    for name in overrides:
        if name in known or name in used:
            continue
        if name.partition(":")[0] in services:
            raise ValueError(f"{where}: there is no rule {name}{_perhaps(name, known)}")
        log.warning("%s: the rule %s is neither one of ours nor named by another%s", where, name, _perhaps(name, known))
    return overrides


def _perhaps(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; is {near[0]} meant?" if near else ""


def _named(check: Any) -> Iterator[str]:
    """The rules that a check asks."""
    if isinstance(check, _checks.RuleCheck):
        yield str(check.match)
    for part in getattr(check, "rules", ()):
        yield from _named(part)
    if isinstance(check, _checks.NotCheck):
        yield from _named(check.rule)
