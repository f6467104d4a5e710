"""Request groups: amounts that one provider, the host or a device below it, must give together.

A port with a guarantee has them in `resource_request`, in one of two forms; a flavor has them with suffixes
(`resources1:…`).  Both become groups of the scheduler's ask.  The provider that is chosen for a port's group is sent to the
network service in the binding profile's `allocation`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from moorage.model.errors import Internal
from moorage.model.ids import ProviderId

ALLOCATION = "allocation"
"""The key of a binding profile that names the chosen provider, or one for each group."""

SRIOV_NET_VF = "SRIOV_NET_VF"
WHOLE_VNIC_TYPE = "direct-physical"
"""Ports of this type are a whole interface."""

WHOLE_INTERFACE = "CUSTOM_SRIOV_WHOLE_INTERFACE"
"""The trait of interfaces that are passed through as a whole; each counts as one virtual function."""

FUNCTION_VNIC_TYPES = frozenset({"direct", "macvtap", WHOLE_VNIC_TYPE})
"""Ports of these types are virtual functions or whole interfaces; the claim chooses which one (S1.15)."""

UNCLAIMED_VNIC_TYPES = frozenset(
    {
        "accelerator-direct",
        "accelerator-direct-physical",
        "baremetal",
        "remote-managed",
        "smart-nic",
        "vdpa",
        "virtio-forwarder",
    }
)
"""Ports of these types need a device that no host of this cloud offers; without it they would be ordinary ports."""

Subtree: TypeAlias = tuple[str, ...]
"""Ids of groups whose providers must lie in one subtree: one of them at or above all the others."""

ResourceRequest: TypeAlias = Mapping[str, Any]


class RequestGroup(msgspec.Struct, frozen=True):
    """What one provider must give."""

    id: str
    """The network service's id of the group; the port's id in the older form; the suffix of a flavor's group."""
    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    port: str = ""
    """The port to which the group belongs; empty: the group is the flavor's."""


class VirtualFunction(msgspec.Struct, frozen=True):
    """One virtual function, as a port's binding profile describes it."""

    address: str
    number: int = 0
    """Its number on its interface."""
    vendor_id: str = ""
    product_id: str = ""
    physical_network: str = ""
    pf_mac: str = ""
    card_serial_number: str = ""

    def profile(self) -> dict[str, Any]:
        """The binding profile in Nova's form; unknown values are left out."""
        fields: dict[str, Any] = {
            "pci_slot": self.address,
            "pci_vendor_info": f"{self.vendor_id}:{self.product_id}",
            "physical_network": self.physical_network,
            "vf_num": self.number,
        }
        fields |= {"pf_mac_address": self.pf_mac} if self.pf_mac else {}
        return fields | ({"card_serial_number": self.card_serial_number} if self.card_serial_number else {})

    def profile_of_undivided(self) -> dict[str, Any]:
        """The same for a whole interface: its MAC becomes the port's."""
        fields: dict[str, Any] = {
            "pci_slot": self.address,
            "pci_vendor_info": f"{self.vendor_id}:{self.product_id}",
            "physical_network": self.physical_network,
        }
        return fields | ({"device_mac_address": self.pf_mac} if self.pf_mac else {})


def function_group(port: str, physnets: tuple[str, ...], *, whole: bool = False) -> RequestGroup:
    """Return the group of a port that needs a virtual function of an interface with these traits; `whole`: of a whole interface."""
    required, forbidden = ((*physnets, WHOLE_INTERFACE), ()) if whole else (physnets, (WHOLE_INTERFACE,))
    return RequestGroup(f"{port}/function", {SRIOV_NET_VF: 1}, required, forbidden, port=port)


def groups_of(request: ResourceRequest | None, port: str) -> tuple[tuple[RequestGroup, ...], tuple[Subtree, ...]]:
    """Return a port's groups, and which of them must be in one subtree; nothing for a port without a guarantee.

    `{"resources", "required"}` is one group under the port's own id; `{"request_groups", "same_subtree"}` names its groups.
    """
    if not request:
        return (), ()
    if "request_groups" not in request:
        return _nonempty((_group(port, port, request),)), ()
    groups = _nonempty(tuple(_group(each["id"], port, each) for each in request["request_groups"]))
    together = tuple(request.get("same_subtree") or ())
    return groups, (together,) if len(together) > 1 else ()


def _group(id: str, port: str, request: ResourceRequest) -> RequestGroup:
    resources = {name: int(amount) for name, amount in (request.get("resources") or {}).items()}
    return RequestGroup(id, resources, tuple(request.get("required") or ()), port=port)


def _nonempty(groups: tuple[RequestGroup, ...]) -> tuple[RequestGroup, ...]:
    return tuple(group for group in groups if group.resources or group.required)


def allocation_of(
    request: ResourceRequest | None, port: str, providers: Mapping[str, ProviderId]
) -> str | dict[str, str] | None:
    """Return the binding profile's `allocation`: one provider in the older form, one for each group in the newer form.

    `providers` are those of the choice.  None: the port has no guarantee.  Raises Internal when a group of the port has no provider.
    """
    groups, _ = groups_of(request, port)
    if not request or not groups:
        return None
    if missing := [group.id for group in groups if group.id not in providers]:
        raise Internal(f"no provider was chosen for the groups {', '.join(missing)} of port {port}")
    if "request_groups" not in request:
        return str(providers[port])
    return {group.id: str(providers[group.id]) for group in groups}


def providers_in(request: ResourceRequest | None, port: str, allocation: object) -> dict[str, ProviderId]:
    """Return group id → provider, as a bound port's profile names them; empty if it names none."""
    groups, _ = groups_of(request, port)
    if isinstance(allocation, str):
        return {group.id: ProviderId(allocation) for group in groups if group.id == port}
    if not isinstance(allocation, Mapping):
        return {}
    return {group.id: ProviderId(allocation[group.id]) for group in groups if group.id in allocation}


def amounts_held(request: ResourceRequest | None, port: str, allocation: object) -> dict[tuple[ProviderId, str], int]:
    """Return what a bound port holds of each provider; it is released when the interface is detached or the port deleted."""
    groups, _ = groups_of(request, port)
    providers = providers_in(request, port, allocation)
    held: dict[tuple[ProviderId, str], int] = {}
    for group in groups:
        if (provider := providers.get(group.id)) is not None:
            for resource, amount in group.resources.items():
                held[provider, resource] = held.get((provider, resource), 0) + amount
    return held
