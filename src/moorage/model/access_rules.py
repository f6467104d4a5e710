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


class _Form:
    """One path of a rule. Matching takes linear time in the length of the path: users write rules, and a regular expression could be
    written so that it takes exponential time.

    A state is a set of positions in the pattern, as bits; each character advances all of them at once.
    """

    def __init__(self, pattern: str) -> None:
        self._literal: dict[str, int] = {}
        self._one_part = self._any = 0
        at = 1
        for piece in re.split(r"(\*\*(?:\*\*)*|\*|\{[^{}/]*\})", pattern):
            if piece.startswith("**"):
                self._any |= at  # stays at its place while it takes, and is passed over at once
                at <<= 1
            elif piece == "*" or (piece.startswith("{") and piece.endswith("}")):
                self._one_part |= at
                at <<= 1
            else:
                for character in piece:
                    self._literal[character] = self._literal.get(character, 0) | at
                    at <<= 1
        self._end = at

    def matches(self, path: str) -> bool:
        state = self._passed_over(1)
        for character in path:
            moved = (state & self._literal.get(character, 0)) << 1 | state & self._any
            if character != "/":
                moved |= (state & self._one_part) << 1 | state & (self._one_part << 1)
            if not moved:
                return False
            state = self._passed_over(moved)
        return bool(state & self._end)

    def _passed_over(self, state: int) -> int:
        return state | (state & self._any) << 1


@lru_cache(maxsize=2_000)
def _form(path: str) -> _Form:
    return _Form(path)


def permits(rules: Iterable[AccessRule], service: str, method: str, path: str) -> bool:
    """Tell whether one of the rules allows the call."""
    return any(rule.service == service and rule.method == method and _form(rule.path).matches(path) for rule in rules)
