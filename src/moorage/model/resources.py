"""Resource classes, inventories of hosts, network cards and segments, and the needs of a flavor.

Names of classes and traits are those of os-resource-classes and os-traits; a site's own begin with `CUSTOM_`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec
import os_resource_classes
import os_traits

from moorage.model import guest_hardware, guest_requests
from moorage.model.errors import Invalid
from moorage.model.request_groups import RequestGroup

Resources: TypeAlias = Mapping[str, int]

VCPU = "VCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"
IPV4_ADDRESS = "IPV4_ADDRESS"

STANDARD_CLASSES: tuple[str, ...] = tuple(os_resource_classes.STANDARDS)
STANDARD_TRAITS: frozenset[str] = frozenset(os_traits.get_traits())
DISABLED_TRAIT = "COMPUTE_STATUS_DISABLED"
CUSTOM = re.compile(r"^CUSTOM_[A-Z0-9_]+$")

AMOUNT_MAX = 2_147_483_647
DIGITS_MAX = 18
CAPACITY_MAX = 1 << 62
"""Limit of a capacity: overcommit ratios may be as large as a float, and sums of capacities and amounts must stay within 64 bits."""

_RESOURCE_SPEC = re.compile(r"^resources([a-zA-Z0-9_-]{1,64})?:([A-Z0-9_]+)$")
_TRAIT_SPEC = re.compile(r"^trait([a-zA-Z0-9_-]{1,64})?:([A-Z0-9_]+)$")


class Inventory(msgspec.Struct, frozen=True):
    """How much of one class a provider has, and the limits of a single allocation."""

    total: int
    reserved: int = 0
    ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = AMOUNT_MAX
    step: int = 1

    @property
    def capacity(self) -> int:
        """The amount that may be used in all: Placement's `(total - reserved) * allocation_ratio`, whole units only."""
        return math.floor(min(max((self.total - self.reserved) * self.ratio, -CAPACITY_MAX), CAPACITY_MAX))


class Needs(msgspec.Struct, frozen=True):
    """What a flavor and an image ask of the host itself, and the flavor's groups for single providers."""

    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    groups: tuple[RequestGroup, ...] = ()
    """Keys with a suffix (`resources1:…`, `trait1:…`), one group for each suffix."""
    group_policy: Literal["none", "isolate"] = "none"


def needs_of(
    *,
    vcpus: int,
    memory_mb: int,
    disk_gb: int,
    extra_specs: Mapping[str, str] | None = None,
    image_properties: Mapping[str, str] | None = None,
) -> Needs:
    """Return the amounts and traits of a flavor with its extra specs, and of an image with its `trait:` properties.

    The hardware that they ask for adds traits and amounts too (`guest_hardware.traits_of`, `guest_requests.resources_of`).

    `resources:CLASS=n` replaces the flavor's own amount, and 0 drops the class; `trait:NAME=required|forbidden`.
    With a suffix they are a group that one provider serves; a policy that is missing or unknown is `none`.  `disk_gb`
    is root, ephemeral and swap together, rounded up to whole gigabytes by the caller.
    Raises Invalid for values that are not allowed, and for a trait that is both required and forbidden.
    """
    own = _ParsedGroup({VCPU: vcpus, MEMORY_MB: memory_mb, DISK_GB: disk_gb})
    suffixed: dict[str, _ParsedGroup] = {}
    for key, value in (extra_specs or {}).items():
        if match := _RESOURCE_SPEC.match(key):
            group = suffixed.setdefault(match[1], _ParsedGroup()) if match[1] else own
            group.resources[match[2]] = _amount(key, value)
        elif match := _TRAIT_SPEC.match(key):
            group = suffixed.setdefault(match[1], _ParsedGroup()) if match[1] else own
            _trait(match[2], key, value, group.required, group.forbidden)
    for key, value in (image_properties or {}).items():
        if (match := _TRAIT_SPEC.match(key)) and not match[1]:
            if value != "required":
                raise Invalid(f"image property {key} may only be 'required'")
            own.required.add(match[2])
    own.required |= guest_hardware.traits_of(extra_specs or {}, image_properties or {})
    own.resources |= guest_requests.resources_of(vcpus, extra_specs or {}, image_properties or {})
    for group in (own, *suffixed.values()):
        if both := group.required & group.forbidden:
            raise Invalid(f"trait {min(both)} is both required and forbidden by flavor and image")
    return Needs(
        own.amounts(),
        tuple(sorted(own.required)),
        tuple(sorted(own.forbidden)),
        tuple(group.group(suffix) for suffix, group in sorted(suffixed.items()) if group.amounts() or group.required),
        "isolate" if (extra_specs or {}).get("group_policy") == "isolate" else "none",
    )


@dataclass
class _ParsedGroup:
    """What is asked together, while it is read."""

    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)

    def amounts(self) -> dict[str, int]:
        return {name: amount for name, amount in self.resources.items() if amount > 0}

    def group(self, suffix: str) -> RequestGroup:
        return RequestGroup(suffix, self.amounts(), tuple(sorted(self.required)), tuple(sorted(self.forbidden)))


def _amount(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > DIGITS_MAX or int(value) > AMOUNT_MAX:
        raise Invalid(f"extra spec {key} must be a whole number from 0 to {AMOUNT_MAX}")
    return int(value)


def _trait(name: str, key: str, value: str, required: set[str], forbidden: set[str]) -> None:
    if value == "required":
        required.add(name)
    elif value == "forbidden":
        forbidden.add(name)
    else:
        raise Invalid(f"extra spec {key} must be 'required' or 'forbidden'")
