"""Query parameters: amounts, traits, aggregates, and the groups of a request for candidates."""

import re
from collections.abc import Mapping, Sequence

from moorage.api.placement.web import Req, is_uuid, uuid_of
from moorage.model.errors import Invalid
from moorage.placement import codes
from moorage.placement.candidates import Group, Wide

_KEY = re.compile(r"^(resources|required|member_of|in_tree)([1-9][0-9]*)?$")
_KEY_33 = re.compile(r"^(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?$")
GROUPS_MAX = 64


def amounts(value: str) -> dict[str, int]:
    """`VCPU:2,MEMORY_MB:1024`."""
    if not value.strip():
        raise Invalid("Badly formed resources parameter: it is empty. Expected for example VCPU:2,MEMORY_MB:1024.")
    found: dict[str, int] = {}
    for part in value.split(","):
        name, colon, number = part.partition(":")
        if not colon or ":" in number:
            raise Invalid(f"Badly formed resources parameter: {part}. Expected for example VCPU:2,MEMORY_MB:1024.")
        try:
            amount = int(number)
        except ValueError as failure:
            raise Invalid(f"Requested resource {name} needs a positive whole number. Got: {number}.") from failure
        if amount < 1:
            raise Invalid(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        found[name] = amount
    return found


def _traits(value: str, *, forbidden_too: bool, any_of: bool) -> tuple[list[frozenset[str]], set[str]]:
    words = "Invalid query string parameters: "
    if value.startswith("in:"):
        names = {part.strip() for part in value[3:].split(",")}
        if not any_of:
            raise Invalid(words + f"'in:' is supported since microversion 1.39. Got: {value}")
        if not all(names) or any(name.startswith("!") for name in names):
            raise Invalid(words + f"'in:' takes trait names that are not forbidden. Got: {value}")
        return [frozenset(names)], set()
    parts = [part.strip() for part in value.split(",")]
    forbidden = {part.lstrip("!") for part in parts if part.startswith("!")}
    if not all(parts) or not all(forbidden):
        raise Invalid(words + f"an empty trait in: {value}")
    if forbidden and not forbidden_too:
        raise Invalid(words + f"forbidden traits are supported since microversion 1.22. Got: {value}")
    return [frozenset([part]) for part in parts if not part.startswith("!")], forbidden


def traits(req: Req, key: str) -> tuple[list[frozenset[str]], set[str]]:
    """Required (any of each set, all sets) and forbidden."""
    values = req.values(key) if req.since(39) else req.values(key)[-1:]
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        need, never = _traits(value, forbidden_too=req.since(22), any_of=req.since(39))
        required += need
        forbidden |= never
    return required, forbidden


def member_of(req: Req, key: str) -> tuple[list[frozenset[str]], set[str]]:
    """Aggregates: in any of each set, and in none of the others."""
    values = req.values(key)
    if len(values) > 1 and not req.since(24):
        raise Invalid(f"Multiple {key} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        negated = value.startswith("!")
        plain = value[1:] if negated else value
        several = plain.startswith("in:")
        names = plain[3:].split(",") if several else [plain]
        if not several and "," in plain:
            raise Invalid(f"Multiple values for 'member_of' must begin with 'in:' or '!in:'. Got: {value}")
        for name in names:
            if not is_uuid(name):
                raise Invalid(f"Invalid query string parameters: 'member_of' must hold valid UUIDs. Got: {name}")
        if negated and not req.since(32):
            raise Invalid(f"Forbidden {key} parameters are not supported in the specified microversion")
        if negated:
            forbidden |= {uuid_of(name) for name in names}
        else:
            required.append(frozenset(uuid_of(name) for name in names))
    return required, forbidden


def groups(req: Req, wide: Wide) -> dict[str, Group]:
    """The groups by suffix; the one without a suffix may be spread over several providers."""
    pattern = _KEY_33 if req.since(33) else _KEY
    found: dict[str, Group] = {}
    for key, value in req.query:
        if (match := pattern.match(key)) is None:
            continue
        kind, suffix = match[1], match[2] or ""
        group = found.setdefault(suffix, Group(suffix))
        if kind == "resources":
            group.resources = amounts(value)
        elif kind == "required":
            group.required, group.forbidden = traits(req, key)
        elif kind == "member_of":
            group.member_of, group.not_member_of = member_of(req, key)
        else:
            if not is_uuid(value.strip()):
                raise Invalid(f"Invalid query string parameters: 'in_tree' must be a UUID. Got: {value}")
            group.in_tree = uuid_of(value.strip())
    if len(found) > GROUPS_MAX:
        raise Invalid(f"at most {GROUPS_MAX} groups may be asked for at once")
    _check(req, found, wide)
    return found


def _check(req: Req, found: Mapping[str, Group], wide: Wide) -> None:
    bare = sorted(suffix for suffix, group in found.items() if not group.resources)
    if req.since(36):
        named: set[str] = set().union(*wide.same_subtree)
        if len(bare) == len(found):
            raise Invalid("There must be at least one resources or resources[$S] parameter.", code=codes.MISSING_VALUE)
        if wrong := [suffix for suffix in bare if suffix not in named]:
            raise Invalid(f"Groups without resources must be named in same_subtree: {wrong}.", code=codes.BAD_VALUE)
        if wrong := sorted(suffix for suffix in named if suffix not in found):
            raise Invalid(f"same_subtree names groups that are not there: {wrong}.", code=codes.BAD_VALUE)
    elif bare or not found:
        raise Invalid(f"All request groups must specify resources; these do not: {bare}")
    clashing = [suffix for suffix, group in found.items() if any(each <= group.forbidden for each in group.required)]
    if clashing and req.since(22):
        keys = ", ".join(f"required{suffix}" for suffix in sorted(clashing))
        raise Invalid(f"Conflicting required and forbidden traits found in: {keys}")
    if sum(1 for suffix in found if suffix) > 1 and wide.group_policy is None:
        raise Invalid('The "group_policy" parameter is required with more than one "resources{N}" parameter.')


def wide(req: Req) -> Wide:
    """What concerns the request as a whole."""
    limits, policies, roots = req.values("limit"), req.values("group_policy"), req.values("root_required")
    if len(roots) > 1:
        raise Invalid("Query parameter 'root_required' may be specified only once.", code=codes.DUPLICATE_KEY)
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    if roots:
        required, forbidden = _traits(roots[0], forbidden_too=True, any_of=False)
        if clash := set().union(*required) & forbidden:
            raise Invalid(f"Conflicting traits in root_required: {', '.join(sorted(clash))}", code=codes.BAD_VALUE)
    subtrees: Sequence[frozenset[str]] = [
        frozenset(part.strip() for part in value.split(",")) for value in req.values("same_subtree")
    ]
    if any("" in subtree for subtree in subtrees):
        raise Invalid("The group without a suffix cannot be in `same_subtree`", code=codes.BAD_VALUE)
    return Wide(
        limit=int(limits[0]) if limits else None,
        group_policy=policies[0] if policies else None,
        root_required=frozenset().union(*required),
        root_forbidden=frozenset(forbidden),
        same_subtree=tuple(subtrees),
        nested=req.since(29),
    )
