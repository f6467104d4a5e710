"""Whether the back end has what a volume type asks for: extra specs against capabilities, as Cinder's scheduler compares them.

Source: Cinder 29, the capabilities filter and the operators that its administration guide lists for extra specs.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from moorage_embedded.volume.validation import TRUE

SCOPE = "capabilities"
"""The only prefix that is checked (`capabilities:name`); other prefixes are for drivers."""


def _truth(said: Any) -> bool:
    return str(said).strip().lower() in TRUE


_OPERATORS: Mapping[str, Callable[[Any, str], bool]] = {
    "=": lambda held, asked: float(held) >= float(asked),
    "==": lambda held, asked: float(held) == float(asked),
    "!=": lambda held, asked: float(held) != float(asked),
    ">=": lambda held, asked: float(held) >= float(asked),
    "<=": lambda held, asked: float(held) <= float(asked),
    "<in>": lambda held, asked: asked in str(held),
    "<is>": lambda held, asked: _truth(held) is _truth(asked),
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def unmet(specs: Mapping[str, str | None], capabilities: Mapping[str, Any]) -> str | None:
    """The first spec (`key=value`) that is not met; None when all are."""
    for key, asked in specs.items():
        scope = key.split(":")
        if len(scope) > 1 and scope[0] != SCOPE:
            continue
        held: Any = capabilities
        for word in scope[1:] if scope[0] == SCOPE else scope:
            held = held.get(word) if isinstance(held, Mapping) else None
        found = held if isinstance(held, list) else [held]
        if held is None or not any(meets(each, asked) for each in found):
            return f"{key}={asked}"
    return None


def meets(held: Any, asked: str | None) -> bool:
    """Whether one capability is what one spec asks for."""
    if asked is None:
        return held is None
    words = asked.split()
    if words and words[0] == "<or>":
        return str(held) in words[1::2]
    compare = _OPERATORS.get(words[0]) if words else None
    if compare is None:
        return str(held) == asked
    try:
        return len(words) > 1 and compare(held, words[1])
    except (TypeError, ValueError):
        return False
