"""Makes findings, for the checks."""

from collections.abc import Iterable, Mapping

from moorage.model.audit import KINDS, Finding
from moorage.store.region.placement.claim_statements import Key


def finding(
    kind: str, what: str, where: str, server: str = "", *, expected: object = "", found: object = "", why_not: str = ""
) -> Finding:
    """One finding; `why_not`: the reason that this one is not repaired, although its kind may be."""
    known = KINDS[kind]
    repairable = known.repairable and not why_not
    return Finding(kind, what, where, server, str(expected), str(found), repairable, why_not or known.repair)


def amounts(held: Mapping[Key, int]) -> str:
    """The amounts as text for operators."""
    return joined(f"{resource} {amount} of {provider}" for (provider, resource), amount in sorted(held.items()))


def joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "nothing"
