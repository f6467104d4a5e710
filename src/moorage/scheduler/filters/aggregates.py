"""Aggregates of the Compute API that reserve hosts for some tenants, flavors or images."""

from collections.abc import Callable

import numpy as np

from moorage.model.world import Ask, Mask, Refusals, World

TENANT_KEY = "filter_tenant_id"
SPEC_SCOPE = "aggregate_instance_extra_specs:"


def tenant_isolation(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts of aggregates with `filter_tenant_id` for other tenants (one id, several with commas, or further keys of that prefix)."""
    closed = np.zeros(world.size, dtype=np.bool_)
    opened = np.zeros(world.size, dtype=np.bool_)
    for aggregate in world.aggregates:
        values = [value for key, value in aggregate.metadata.items() if key.startswith(TENANT_KEY)]
        if not values:
            continue
        tenants = {name.strip() for value in values for name in value.split(",")}
        (opened if ask.project in tenants else closed)[aggregate.hosts] = True
    if not closed.any():
        return None
    return Refusals(closed & ~opened, lambda slot: "kept for other projects", "kept for other projects")


def flavor_aggregates(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts whose aggregates' metadata does not match the flavor's extra specs `aggregate_instance_extra_specs:key`."""
    wanted = {k.removeprefix(SPEC_SCOPE): v for k, v in ask.extra_specs.items() if k.startswith(SPEC_SCOPE)}
    if not wanted:
        return None
    unmet: dict[str, Mask] = {}
    for key, value in wanted.items():
        met = np.zeros(world.size, dtype=np.bool_)
        for aggregate in world.aggregates:
            if key in aggregate.metadata and matches(aggregate.metadata[key], value):
                met[aggregate.hosts] = True
        unmet[f"{key}={value}"] = ~met
    mask = np.zeros(world.size, dtype=np.bool_)
    for part in unmet.values():
        mask |= part

    def why(slot: int) -> str:
        return "in no aggregate with " + ", ".join(name for name, part in unmet.items() if part[slot])

    return Refusals(mask, why, "aggregates do not match the flavor")


def matches(actual: str, wanted: str) -> bool:
    """Compare a value of metadata (several with commas) with that of an extra spec: a plain value, or one with an operator."""
    values = {part.strip() for part in actual.split(",")}
    words = wanted.split()
    if not words:
        return wanted in values
    operator, operands = words[0], words[1:]
    if operator == "<in>" and operands:
        return any(operands[0] in value for value in values)
    if operator == "<or>":
        return any(value in {o for o in operands if o != "<or>"} for value in values)
    if operator == "<all-in>":
        return all(any(o in value for value in values) for o in operands)
    if operator in _TEXT and operands:
        return any(_TEXT[operator](value, operands[0]) for value in values)
    if operator in _NUMBER and operands:
        return any(_compared(operator, value, operands[0]) for value in values)
    return wanted in values


_TEXT: dict[str, Callable[[str, str], bool]] = {
    "s==": lambda a, b: a == b,
    "s!=": lambda a, b: a != b,
    "s<": lambda a, b: a < b,
    "s<=": lambda a, b: a <= b,
    "s>": lambda a, b: a > b,
    "s>=": lambda a, b: a >= b,
}
_NUMBER: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a >= b,  # Nova's "=" means "at least"
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


def _compared(operator: str, actual: str, wanted: str) -> bool:
    try:
        return _NUMBER[operator](float(actual), float(wanted))
    except ValueError:
        return False
