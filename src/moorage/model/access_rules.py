"""Access rules of application credentials: which calls of which services a token may make, as Keystone's middleware reads them.

In a path `*` and `{name}` stand for one part, `**` for any number of parts.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec


class AccessRule(msgspec.Struct, frozen=True):
    service: str
    """A type of the catalog: `compute`, `identity` …"""
    method: str
    path: str


@lru_cache(maxsize=2_000)
def _form(path: str) -> re.Pattern[str]:
    parts = []
    for part in re.split(r"(\*\*|\*|\{[^{}/]*\})", path):
        if part == "**":
            parts.append(".*")
        elif part == "*" or (part.startswith("{") and part.endswith("}")):
            parts.append("[^/]+")
        else:
            parts.append(re.escape(part))
    return re.compile("".join(parts))


def permits(rules: Iterable[AccessRule], service: str, method: str, path: str) -> bool:
    """Whether one of the rules allows the call."""
    return any(
        rule.service == service and rule.method == method and _form(rule.path).fullmatch(path) is not None
        for rule in rules
    )
