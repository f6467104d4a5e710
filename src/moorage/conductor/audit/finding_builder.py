"""How checks make findings."""

from collections.abc import Iterable, Mapping

from moorage.model.audit import KINDS, Finding
from moorage.store.region.placement.claim_statements import Key


def finding(
    kind: str, what: str, where: str, server: str = "", *, expected: object = "", found: object = "", why_not: str = ""
) -> Finding:
    """One; `why_not`: this one is not repaired, though its kind may be."""
    known = KINDS[kind]
    repairable = known.repairable and not why_not
    return Finding(kind, what, where, server, str(expected), str(found), repairable, why_not or known.repair)


def amounts(held: Mapping[Key, int]) -> str:
    """As people read it."""
    return joined(f"{resource} {amount} of {provider}" for (provider, resource), amount in sorted(held.items()))


def joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "nothing"
