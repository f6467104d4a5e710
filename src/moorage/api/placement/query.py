"""Query parameters: amounts, traits, aggregates, and the groups of a request for candidates."""

import re
from collections.abc import Mapping, Sequence

from moorage.api.placement.http import Req, aggregate_of, is_uuid
from moorage.model.errors import Invalid
from moorage.model.provider_tree import GroupDemand
from moorage.placement.service import error_codes
from moorage.placement.service.candidate_rules import CandidateRules

_KEY = re.compile(r"^(resources|required|member_of|in_tree)([1-9][0-9]*)?$")
_KEY_33 = re.compile(r"^(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?$")
GROUPS_MAX = 64
DIGITS_MAX = 18
"""Of a limit; there are never so many candidates."""
FORM = (
    "Badly formed resources parameter. Expected resources query string parameter in form: "
    "?resources=VCPU:2,MEMORY_MB:1024. Got: "
)


def amounts(value: str) -> dict[str, int]:
    """Parse amounts such as `VCPU:2,MEMORY_MB:1024`. Raises Invalid when they have another form."""
    if not value.strip():
        raise Invalid(FORM + "empty string.")
    parsed: dict[str, int] = {}
    for part in value.split(","):
        name, colon, number = part.partition(":")
        if not colon or ":" in number:
            raise Invalid(FORM + f"{part}.")
        try:
            amount = int(number)
        except ValueError as failure:
            raise Invalid(f"Requested resource {name} expected positive integer amount. Got: {number}.") from failure
        if amount < 1:
            raise Invalid(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        parsed[name] = amount
    return parsed


EXPECTED = "Expected 'required' parameter value of the form: {}. Got an empty trait in: {}"


def _traits(value: str, *, forbidden_too: bool, any_of: bool) -> tuple[list[frozenset[str]], set[str]]:
    words = "Invalid query string parameters: "
    if value.startswith("in:"):
        names = {part.strip() for part in value[3:].split(",")}
        if not any_of:
            raise Invalid(
                words
                + f"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39. Got: {value}"
            )
        if not all(names):
            raise Invalid(words + EXPECTED.format("in:HW_CPU_X86_VMX,CUSTOM_MAGIC", value))
        if any(name.startswith("!") for name in names):
            raise Invalid(
                words + f"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits. Got: {value}"
            )
        return [frozenset(names)], set()
    parts = [part.strip() for part in value.split(",")]
    forbidden = {part.lstrip("!") for part in parts if part.startswith("!")}
    if not all(parts) or not all(forbidden):
        form = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if forbidden_too else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
        raise Invalid(words + EXPECTED.format(form, value))
    if forbidden and not forbidden_too:
        raise Invalid(
            words + f"Expected 'required' parameter value of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: {value}"
        )
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
    """Parse `member_of`: in any aggregate of each set, and in none of the forbidden ones.

    Raises Invalid for values that this version does not allow, and for ids that are not UUIDs.
    """
    values = req.values(key)
    if len(values) > 1 and not req.since(24):
        raise Invalid("Multiple member_of parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for value in values:
        negated = value.startswith("!")
        plain = value[1:] if negated else value
        several = plain.startswith("in:")
        names = plain[3:].split(",") if several else [plain]
        if not several and "," in plain:
            raise Invalid(
                "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the valid "
                f"microversion. Got: {value}"
            )
        for name in names:
            if not is_uuid(name):
                raise Invalid(
                    f"Invalid query string parameters: Expected 'member_of' parameter to contain valid UUID(s). Got: {name}"
                )
        if negated and not req.since(32):
            raise Invalid("Forbidden member_of parameters are not supported in the specified microversion")
        if negated:
            forbidden |= {aggregate_of(name) for name in names}
        else:
            required.append(frozenset(aggregate_of(name) for name in names))
    return required, forbidden


def groups(req: Req, rules: CandidateRules) -> dict[str, GroupDemand]:
    """Parse the request groups by their suffix; the group without a suffix may be spread over several providers.

    Raises Invalid for too many groups, and for an `in_tree` that is not a UUID.
    """
    pattern = _KEY_33 if req.since(33) else _KEY
    demands: dict[str, GroupDemand] = {}
    for key, value in req.query:
        if (match := pattern.match(key)) is None:
            continue
        kind, suffix = match[1], match[2] or ""
        group = demands.setdefault(suffix, GroupDemand(suffix))
        if kind == "resources":
            group.resources = amounts(value)
        elif kind == "required":
            group.required, group.forbidden = traits(req, key)
        elif kind == "member_of":
            group.member_of, group.not_member_of = member_of(req, key)
        else:
            if not is_uuid(value.strip()):
                raise Invalid(
                    f"Invalid query string parameters: Expected 'in_tree' parameter to be a format of uuid. Got: {value}"
                )
            group.in_tree = value.strip()
    if len(demands) > GROUPS_MAX:
        raise Invalid(f"at most {GROUPS_MAX} groups may be asked for at once")
    _check(req, demands, rules)
    return demands


def _check(req: Req, demands: Mapping[str, GroupDemand], rules: CandidateRules) -> None:
    bare = sorted(suffix for suffix, group in demands.items() if not group.resources)
    if req.since(36):
        named: set[str] = set().union(*rules.same_subtree)
        if len(bare) == len(demands):
            raise Invalid(
                "There must be at least one resources or resources[$S] parameter.", code=error_codes.MISSING_VALUE
            )
        if wrong := [suffix for suffix in bare if suffix not in named]:
            raise Invalid(
                "Resourceless suffixed group request should be specified in `same_subtree` query param: "
                f"bad group(s) - {wrong}.",
                code=error_codes.BAD_VALUE,
            )
        if wrong := sorted(suffix for suffix in named if suffix not in demands):
            raise Invalid(
                f"Real suffixes should be specified in `same_subtree`: {wrong} not found.", code=error_codes.BAD_VALUE
            )
    elif bare or not demands:
        raise Invalid(_orphans(demands))
    clashing = [suffix for suffix, group in demands.items() if any(each <= group.forbidden for each in group.required)]
    if clashing and req.since(22):
        keys = ", ".join(f"required{suffix}" for suffix in sorted(clashing))
        raise Invalid(f"Conflicting required and forbidden traits found in: {keys}")
    if sum(1 for suffix in demands if suffix) > 1 and rules.group_policy is None:
        raise Invalid(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )


def _orphans(demands: Mapping[str, GroupDemand]) -> str:
    """What is wrong with groups that ask for no resources (up to 1.35)."""
    bare = {suffix: group for suffix, group in demands.items() if not group.resources}
    if keys := [f"required{suffix}" for suffix, group in bare.items() if group.required]:
        return (
            "All traits parameters must be associated with resources. "
            f"Found the following orphaned traits keys: {', '.join(keys)}"
        )
    if keys := [f"member_of{suffix}" for suffix, group in bare.items() if group.member_of or group.not_member_of]:
        return (
            "All member_of parameters must be associated with resources. "
            f"Found the following orphaned member_of keys: {', '.join(keys)}"
        )
    if bare:
        return "All request groups must specify resources."
    return "At least one request group (`resources` or `resources{$S}`) is required."


def rules(req: Req) -> CandidateRules:
    """Parse the parameters that concern the request as a whole.

    Raises Invalid for repeated, empty or contradicting values.
    """
    limits, policies, roots = req.values("limit"), req.values("group_policy"), req.values("root_required")
    if len(roots) > 1:
        raise Invalid("Query parameter 'root_required' may be specified only once.", code=error_codes.DUPLICATE_KEY)
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    if roots:
        required, forbidden = _traits(roots[0], forbidden_too=True, any_of=False)
        if clash := set().union(*required) & forbidden:
            raise Invalid(
                f"Conflicting required and forbidden traits found in root_required: {', '.join(sorted(clash))}",
                code=error_codes.BAD_VALUE,
            )
    subtrees: Sequence[frozenset[str]] = [
        frozenset(part.strip() for part in value.split(",")) for value in req.values("same_subtree")
    ]
    if any("" in subtree for subtree in subtrees):
        raise Invalid(
            "Empty string (unsuffixed group) can not be specified in `same_subtree`", code=error_codes.BAD_VALUE
        )
    return CandidateRules(
        limit=int(limits[0].strip()[:DIGITS_MAX]) if limits else None,
        group_policy=policies[0] if policies else None,
        root_required=frozenset().union(*required),
        root_forbidden=frozenset(forbidden),
        same_subtree=tuple(subtrees),
        nested=req.since(29),
    )
