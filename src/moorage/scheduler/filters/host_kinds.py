"""Rejects hosts by what they are: images say which hosts can run them, and flavors ask for capabilities."""

from collections.abc import Callable, Mapping

import numpy as np

from moorage.model import guest_requests
from moorage.model.errors import Invalid
from moorage.model.image_requirements import NOTHING, HostKind, required_of
from moorage.model.spec_operators import satisfies
from moorage.model.world import Ask, Refusals, World

SCOPE = "capabilities:"
ADDRESS_BITS = "hw:maxphysaddr_bits"
IMAGE_NAMES = (
    "hw_architecture", "architecture", "img_hv_type", "hypervisor_type", "hw_vm_mode", "vm_mode", "img_hv_requested_version",
    "hypervisor_version_requires", "hw_maxphysaddr_bits",
)  # fmt: skip


def image_properties(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts that cannot run the image, by Nova's ImagePropertiesFilter."""
    if not any(name in ask.image_properties for name in IMAGE_NAMES):
        return None
    try:
        wanted = required_of(ask.image_properties)
    except Invalid as wrong:  # of a server that was accepted by a release that did not look
        why = wrong.public
        return _by_kind(world, lambda _kind: why, "the image asks for an unknown kind of host")
    bits = ask.image_properties.get("hw_maxphysaddr_bits", "")
    if wanted == NOTHING and not bits:
        return None

    def lacks(kind: HostKind) -> str:
        return wanted.unmet_by(kind) or _too_narrow(kind, bits)

    named = {"architecture": wanted.architecture, "hypervisor": wanted.hypervisor, "mode": wanted.mode}
    words = ", ".join(f"{name} {value}" for name, value in named.items() if value)
    return _by_kind(world, lacks, f"cannot run the image ({words or 'its version or address bits'})")


def compute_capabilities(ask: Ask, world: World) -> Refusals | None:
    """Reject hosts without the flavor's `capabilities:`, by Nova's ComputeCapabilitiesFilter."""
    wanted = {name.removeprefix(SCOPE): value for name, value in ask.extra_specs.items() if name.startswith(SCOPE)}
    if bits := ask.extra_specs.get(ADDRESS_BITS):
        wanted["cpu_info:maxphysaddr:bits"] = f">= {bits}"
    if not wanted:
        return None

    def lacks(kind: HostKind) -> str:
        facts = kind.facts()
        unmet = [name for name, value in wanted.items() if not _has(facts, name, value)]
        return f"lacks the flavor's capabilities {', '.join(unmet)}" if unmet else ""

    return _by_kind(world, lacks, f"lacks the flavor's capabilities {', '.join(wanted)}")


def unmade_requests(ask: Ask, world: World) -> Refusals | None:
    """Reject every host for what no driver makes and no trait stands for: NUMA nodes, page sizes, locked memory, real time."""
    if not ask.extra_specs and not ask.image_properties:
        return None
    names = guest_requests.unmade(ask.extra_specs, ask.image_properties)
    if not names:
        return None
    cause = f"makes no guests with {', '.join(names)}"
    return Refusals(np.ones(world.size, dtype=np.bool_), lambda _slot: cause, cause)


def _by_kind(world: World, lacks: Callable[[HostKind], str], cause: str) -> Refusals | None:
    """One look at each kind, not at each host; hosts whose kind is not known pass."""
    reasons = [lacks(kind) if kind.known else "" for kind in world.kinds]
    if not any(reasons):
        return None
    column = world.kind
    where = np.array([bool(each) for each in reasons], dtype=np.bool_)[column]
    kept = column.copy()
    return Refusals(where, lambda slot: reasons[kept[slot]], cause)


def _too_narrow(kind: HostKind, bits: str) -> str:
    has = _found(kind.facts(), "cpu_info:maxphysaddr:bits")
    if not (bits.isdecimal() and has is not None and str(has).isdecimal() and int(str(has)) < int(bits)):
        return ""
    return f"has {has} bits of addresses, {bits} asked"


def _found(facts: Mapping[str, object], name: str) -> object:
    at: object = facts
    for part in name.split(":"):
        at = at.get(part) if isinstance(at, Mapping) else None
    return at


def _has(facts: Mapping[str, object], name: str, wanted: str) -> bool:
    value = _found(facts, name)
    return value is not None and satisfies(str(value), wanted)
