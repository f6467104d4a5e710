"""Regular expressions that callers send: one language for all databases, and a bounded search time.

The language is RE2's. It has no back-references and no look-around, so the time of a search is linear in the length of the text;
an expression with these is refused with the reason. A caller's expression is never passed to a database: each database has its own
language, and neither Python's nor PostgreSQL's has such a bound.
"""

import re
from collections.abc import Callable

import re2

from moorage.model.errors import Invalid

CHARACTERS_MAX = 255
UNSEARCHED_CHARACTERS_MAX = 8_000
"""Limit of an expression that is only checked and never searched for, such as a list of tags."""
PROGRAM_INSTRUCTIONS_MAX = 2_000
"""Limit of the compiled program, which bounds the cost of a search for each character of the text."""
MEMORY_MAX_BYTES = 1 << 20
"""Limit of one compiled expression; the last 128 are cached."""
SPECIAL = frozenset("\\^$.|?*+()[]{}\0")


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MEMORY_MAX_BYTES
    options.log_errors = False
    options.never_capture = True
    return options


_OPTIONS = _options()


class Pattern:
    """A compiled expression. Raises Invalid when it is not a valid one."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        why = refusal(text)
        if why is not None:
            raise Invalid(f"'{text[:CHARACTERS_MAX]}' is not a regular expression: {why}")
        self.text = text
        self._compiled = re2.compile(text.encode(), _OPTIONS)

    def found_in(self, text: str) -> bool:
        return self._compiled.search(text.encode()) is not None

    @property
    def literal(self) -> str | None:
        """The text, if the expression is only a text without operators."""
        return None if SPECIAL & set(self.text) else self.text

    @property
    def exact(self) -> str | None:
        """The only text that matches, if the expression is `^text$`: clients send this to find a name."""
        if not (self.text.startswith("^") and self.text.endswith("$")) or "\0" in self.text:
            return None
        parts: list[str] = []
        inside = iter(self.text[1:-1])
        for each in inside:
            if each == "\\":
                each = next(inside, "")
                if not each or each.isalnum():
                    return None
            elif each in SPECIAL:
                return None
            parts.append(each)
        return "".join(parts)


def refusal(text: str, *, searched: bool = True) -> str | None:
    """Say why this is not a regular expression, or not one that may be `searched` for; None: it is one."""
    most = CHARACTERS_MAX if searched else UNSEARCHED_CHARACTERS_MAX
    if len(text) > most:
        return f"it has more than {most} characters"
    try:
        compiled = re2.compile(text.encode(), _OPTIONS)
    except UnicodeEncodeError:
        return "it is not Unicode text"
    except re2.error as wrong:
        message = wrong.args[0] if wrong.args else ""
        return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    if searched and compiled.programsize > PROGRAM_INSTRUCTIONS_MAX:
        return "it repeats too much"
    return None


def like(text: str) -> Callable[[str], bool]:
    """Build a matcher for names that contain this, as SQL's `LIKE '%text%'`: `%` stands for any text, `_` for one character."""
    if len(text) > CHARACTERS_MAX:
        return lambda _: False  # no name is as long
    wanted = re.sub("%+", "%", text).strip("%")
    parts = [_WILD.get(each) or re2.escape(each) for each in wanted]
    compiled = re2.compile(("(?is)" + "".join(parts)).encode(errors="replace"), _OPTIONS)
    return lambda name: compiled.search(name.encode()) is not None


_WILD = {"%": ".*", "_": "."}
