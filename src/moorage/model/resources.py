"""Amounts of things a host, a network card or a segment can give: resource classes, inventories, what a flavor asks for.

Names of classes and traits are those of os-resource-classes and os-traits; a site's own begin with `CUSTOM_`.
"""

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import os_resource_classes
import os_traits

from moorage.model.errors import Invalid

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

_RESOURCE_SPEC = re.compile(r"^resources:([A-Z0-9_]+)$")
_TRAIT_SPEC = re.compile(r"^trait:([A-Z0-9_]+)$")


class Inventory(msgspec.Struct, frozen=True):
    """How much of one class a provider has, and in which portions it gives it away."""

    total: int
    reserved: int = 0
    ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = AMOUNT_MAX
    step: int = 1

    @property
    def capacity(self) -> int:
        """What may be used in all: Placement's `(total - reserved) * allocation_ratio`, whole units only."""
        return math.floor((self.total - self.reserved) * self.ratio)


class Needs(msgspec.Struct, frozen=True):
    """What a flavor and an image ask of the host itself."""

    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


def needs_of(
    *,
    vcpus: int,
    memory_mb: int,
    disk_gb: int,
    extra_specs: Mapping[str, str] | None = None,
    image_properties: Mapping[str, str] | None = None,
) -> Needs:
    """Amounts and traits of a flavor with its extra specs and of an image with its `trait:` properties.

    `resources:CLASS=n` replaces the flavor's own amount, and 0 drops the class; `trait:NAME=required|forbidden`.
    `disk_gb` is root, ephemeral and swap together, rounded up to whole gigabytes by the caller.
    """
    resources = {VCPU: vcpus, MEMORY_MB: memory_mb, DISK_GB: disk_gb}
    required: set[str] = set()
    forbidden: set[str] = set()
    for key, value in (extra_specs or {}).items():
        if found := _RESOURCE_SPEC.match(key):
            resources[found[1]] = _amount(key, value)
        elif found := _TRAIT_SPEC.match(key):
            _trait(found[1], key, value, required, forbidden)
    for key, value in (image_properties or {}).items():
        if found := _TRAIT_SPEC.match(key):
            if value != "required":
                raise Invalid(f"image property {key} may only be 'required'")
            required.add(found[1])
    if both := required & forbidden:
        raise Invalid(f"trait {min(both)} is both required and forbidden by flavor and image")
    return Needs({k: n for k, n in resources.items() if n > 0}, tuple(sorted(required)), tuple(sorted(forbidden)))


def _amount(key: str, value: str) -> int:
    if not value.isdigit() or int(value) > AMOUNT_MAX:
        raise Invalid(f"extra spec {key} must be a whole number from 0 to {AMOUNT_MAX}")
    return int(value)


def _trait(name: str, key: str, value: str, required: set[str], forbidden: set[str]) -> None:
    if value == "required":
        required.add(name)
    elif value == "forbidden":
        forbidden.add(name)
    else:
        raise Invalid(f"extra spec {key} must be 'required' or 'forbidden'")
