"""Seeded chance, and the values that software breaks on."""

import json
import random
import uuid
from collections.abc import Callable, MutableMapping, MutableSequence
from typing import Any, TypeVar, cast

ValueT = TypeVar("ValueT")

TEXTS = (
    "", " ", "a", "A" * 255, "A" * 256, "é" * 300, "\x00", "a\x00b", "a\nb", "\r\nX: y", "\x1b[31m", "\ud800", "\U0001f600", "²", "٣",
    "%00", "%s%n", "{}", "{0}", "${x}", "../../etc/passwd", "/", "//", "\\", "'", '"', "';--", "' OR 1=1--", "<script>", "null", "None",
    "true", "-1", "0", "1e309", "NaN", "9" * 30, "9" * 5_000, "0x10", "1_000", "*", ".*", "^(a|a)*$", "(a+)+$", r"(a)\1", "[", "(?=a)",
    "a,b", "a:b", "a=b", ":", ",", "in:", "!", "!in:a", "__proto__", "self", "id", "default", "192.0.2.1", "::1", "256.1.1.1", "10.0.0.0/8",
    "10.0.0.0/99", "fe80::/10", "00:00:00:00:00:00", "zz:zz", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59",
    "=", "QUJD", "QUJ", "req-x", "ssh-rsa AAAA", "A" * 70_000,
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 255, 65_535, 65_536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e300,
    float("inf"), float("nan"),
)  # fmt: skip
SHORT_CHARACTERS = 60
WORDS = ("web", "db1", "a-b", "x", "demo", "Ärger", "one two")
DEEP = (10, 200, 900, 2_000)


class FuzzDice(random.Random):
    """One source for a whole run."""

    def chance(self, part: float) -> bool:
        return self.random() < part

    def one(self, *values: ValueT) -> ValueT:
        return values[self.randrange(len(values))]

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.getrandbits(128), version=4))

    def text(self) -> str:
        return self.choice(TEXTS)

    def ordinary_text(self) -> str:
        return self.choice(WORDS)

    def odd(self, depth: int = 0) -> Any:
        """Any JSON value, of a kind that nobody expects there."""
        kinds: tuple[Callable[[], Any], ...] = (
            self.text, self.text, lambda: self.choice(NUMBERS), lambda: self.one(None, True, False), self.uuid,
            lambda: [] if depth > 1 else [self.odd(depth + 1) for _ in range(self.one(1, 2, 60))],
            lambda: {} if depth > 1 else {self.text(): self.odd(depth + 1) for _ in range(self.one(1, 2, 20))},
        )  # fmt: skip
        return self.choice(kinds)()

    def spoiled(self, value: Any) -> Any:
        """The same with one to three things about it changed; the value itself may be changed."""
        for _ in range(self.one(1, 1, 1, 2, 3)):
            places = list(_places(value))
            if not places:
                return self.odd()
            holder, key = self.choice(places)
            self._spoil(holder, key)
        return value

    def _spoil(self, holder: Any, key: Any) -> None:
        what = self.randrange(7)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, dict):
            holder[self.text()] = holder.pop(key)
        elif what == 2 and isinstance(holder, dict):
            holder[self.text()] = self.odd()
        elif what == 3:
            short = not isinstance(holder[key], list | dict) and len(_shown(holder[key])) < SHORT_CHARACTERS
            holder[key] = [holder[key]] * (self.one(1, 2, 70, 1_100) if short else self.one(1, 2))
        elif what == 4:
            holder[key] = {self.text(): holder[key]}
        else:
            holder[key] = self.odd()

    def body(self, value: Any) -> bytes:
        """As JSON; sometimes broken as a text."""
        text = json.dumps(value)
        if self.chance(0.02):
            deep = self.choice(DEEP)
            text = text.replace("null", "[" * deep + "]" * deep, 1) if "null" in text else "[" * deep + "]" * deep
        if self.chance(0.03) and isinstance(value, dict) and value:
            text = text[:-1] + "," + text[1:]  # every name twice
        return self.bytes(text.encode()) if self.chance(0.04) else text.encode()

    def bytes(self, data: bytes) -> bytes:
        """With some bytes changed, left out, added, repeated or cut off."""
        found = bytearray(data)
        for _ in range(self.one(1, 1, 2, 5)):
            at = self.randrange(len(found) + 1)
            what = self.randrange(5)
            if what == 0:
                del found[at : at + self.one(1, 4, 40)]
            elif what == 1:
                found[at:at] = self.randbytes(self.one(1, 4, 40))
            elif what == 2:
                found[at:at] = found[max(0, at - 50) : at] * self.one(1, 3)
            elif what == 3 and at < len(found):
                found[at] ^= 1 << self.randrange(8)
            elif what == 4:
                del found[at:]
        return bytes(found)


def _shown(value: Any) -> str:
    """Python writes no number of more than 4,300 digits."""
    return (
        value
        if isinstance(value, str)
        else ""
        if value is None or isinstance(value, bool)
        else repr(float(value))
        if isinstance(value, float)
        else hex(value)
    )


def _places(value: Any) -> Any:
    """Every holder and key in a JSON value."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        keys: Any = ()
        if isinstance(here, dict):
            keys = list(cast("MutableMapping[Any, Any]", here))
        elif isinstance(here, list):
            keys = range(min(len(cast("MutableSequence[Any]", here)), 20))
        for key in keys:
            yield here, key
            waiting.append(here[key])
