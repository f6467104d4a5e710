"""Regular expressions that callers send: one language whatever the database, and a search whose time is bounded.

The language is RE2's. It has neither back-references nor look-around, which is why the time of a search grows with the length of
the text and no faster; what it does not have is refused with the reason. No database is given a caller's expression: each has a
language of its own, and neither Python's nor PostgreSQL's has such a bound.
"""

import re
from collections.abc import Callable

import re2

from moorage.model.errors import Invalid

CHARACTERS_MAX = 255
UNSEARCHED_CHARACTERS_MAX = 8_000
"""Of one whose form is all that counts, such as a list of tags."""
PROGRAM_INSTRUCTIONS_MAX = 2_000
"""What a search costs for each character of the text, at the worst."""
MEMORY_MAX_BYTES = 1 << 20
"""Of one expression that is kept compiled; RE2 keeps the last 128."""
SPECIAL = frozenset("\\^$.|?*+()[]{}\0")


def _options() -> re2.Options:
    found = re2.Options()
    found.max_mem = MEMORY_MAX_BYTES
    found.log_errors = False
    found.never_capture = True
    return found


_OPTIONS = _options()


class Pattern:
    """An expression that was understood. Raises Invalid when it cannot be."""

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
        """The text that is searched for, when the expression is nothing but that."""
        return None if SPECIAL & set(self.text) else self.text

    @property
    def exact(self) -> str | None:
        """The only text that the expression matches, when it is `^text$`: what clients send to find a name."""
        if not (self.text.startswith("^") and self.text.endswith("$")) or "\0" in self.text:
            return None
        found: list[str] = []
        inside = iter(self.text[1:-1])
        for each in inside:
            if each == "\\":
                each = next(inside, "")
                if not each or each.isalnum():
                    return None
            elif each in SPECIAL:
                return None
            found.append(each)
        return "".join(found)


def refusal(text: str, *, searched: bool = True) -> str | None:
    """Why this is no regular expression, or none that we search with where it is to be `searched` for; None: it is one."""
    most = CHARACTERS_MAX if searched else UNSEARCHED_CHARACTERS_MAX
    if len(text) > most:
        return f"it has more than {most} characters"
    try:
        compiled = re2.compile(text.encode(), _OPTIONS)
    except UnicodeEncodeError:
        return "it is not Unicode text"
    except re2.error as wrong:
        said = wrong.args[0] if wrong.args else ""
        return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    if searched and compiled.programsize > PROGRAM_INSTRUCTIONS_MAX:
        return "it repeats too much"
    return None


def like(text: str) -> Callable[[str], bool]:
    """Whether a name has this in it, as SQL's `LIKE '%text%'` finds it: `%` stands for any text, `_` for one character."""
    if len(text) > CHARACTERS_MAX:
        return lambda _: False  # no name is as long
    wanted = re.sub("%+", "%", text).strip("%")
    parts = [_WILD.get(each) or re2.escape(each) for each in wanted]
    compiled = re2.compile(("(?is)" + "".join(parts)).encode(errors="replace"), _OPTIONS)
    return lambda name: compiled.search(name.encode()) is not None


_WILD = {"%": ".*", "_": "."}
