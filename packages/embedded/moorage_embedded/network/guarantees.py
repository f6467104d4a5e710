"""Claims the guarantees of bound ports in placement, and changes them when the policy changes (as Neutron 29 does).

The binding profile of a server's port names the provider of each of its request groups (`allocation`). When the port's
policy changes, each kind of guarantee stays with its provider, the amounts change there, and the profile names the new
groups. The change is refused only when the provider does not have that much left, and while the server is between two
hosts. A kind of guarantee that had no provider gets none: the scheduler decides that when a server is placed; such a
rule concerns only the data plane.

Placement is in another database, so a method runs twice: first to find out what must change, which is then claimed in
placement, and then to do it. The claim is undone when the method is refused after all; after a crash in between, the
reconciler that compares ports and claims repairs it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from moorage.model.network_providers import BANDWIDTH, PACKETS
from moorage.model.request_groups import ALLOCATION, amounts_held
from moorage_embedded.network.faults import NeutronFault, conflict
from moorage_embedded.network.store import Doc

CLAIM_TRIES_MAX = 5
"""So often a verb is run again because what must be claimed changed meanwhile."""
_KINDS = tuple(frozenset(classes.values()) for classes in (BANDWIDTH, PACKETS))


class GuaranteedAmount(msgspec.Struct, frozen=True):
    """What one port holds of a provider's class, before and after."""

    provider: str
    resource: str
    was: int
    now: int


class GuaranteeChange(msgspec.Struct, frozen=True):
    """What placement must say of a server, because one of its ports is guaranteed something else."""

    server: str
    port: str
    amounts: tuple[GuaranteedAmount, ...]

    def taken_back(self) -> "GuaranteeChange":
        amounts = tuple(GuaranteedAmount(each.provider, each.resource, each.now, each.was) for each in self.amounts)
        return GuaranteeChange(self.server, self.port, amounts)


ChangeGuarantees: TypeAlias = Callable[[Sequence[GuaranteeChange], bool], Awaitable[bool]]
"""(changes, whether they must be) → False when one does not fit, and then none was made."""


class ClaimsWanted(Exception):
    """The transaction may not be committed before placement has these changes."""

    def __init__(self, changes: tuple[GuaranteeChange, ...]) -> None:
        super().__init__("placement is to be asked first")
        self.changes = changes


def is_claimed(port: Doc) -> bool:
    """Whether what the port asks was claimed for a server."""
    return bool(port["binding:host_id"]) and port["device_owner"].startswith("compute:")


def is_moving(port: Doc) -> bool:
    """Whether guarantees are claimed for it on a host where it is not yet, or no longer, active."""
    return any(ALLOCATION in each["profile"] for each in port["_bindings"])


def follow(port: Doc, request: Doc | None) -> GuaranteeChange | None:
    """Make a claimed port ask `request` from now on; what placement must change for that. Raises the Fault of a change that cannot be."""
    had = port["resource_request"]
    allocation = port["binding:profile"].get(ALLOCATION)
    port["resource_request"] = request
    if not allocation or not isinstance(allocation, dict):
        return None
    if is_moving(port):
        text = f"Rule is not supported by port {port['id']}: its server is being moved, and holds its guarantees on two hosts"
        raise conflict("QosRuleNotSupported", text)
    _same_ways(had, request)
    held = amounts_held(had, port["id"], allocation)
    providers = {_kind(group): allocation[group["id"]] for group in _groups(had) if group["id"] in allocation}
    named = {group["id"]: providers[_kind(group)] for group in _groups(request) if _kind(group) in providers}
    port["binding:profile"] = port["binding:profile"] | {ALLOCATION: named}
    wanted = amounts_held(request, port["id"], named)
    amounts = tuple(
        GuaranteedAmount(str(key[0]), key[1], held.get(key, 0), wanted.get(key, 0))
        for key in sorted(held.keys() | wanted.keys())
        if held.get(key, 0) != wanted.get(key, 0)
    )
    return GuaranteeChange(port["device_id"], port["id"], amounts) if amounts else None


def _groups(request: Doc | None) -> list[Doc]:
    return [] if request is None else list(request["request_groups"])


def _kind(group: Doc) -> int:
    """Bandwidth or packet rate: which provider it is of."""
    return next(at for at, classes in enumerate(_KINDS) if not classes.isdisjoint(group["resources"]))


def _same_ways(had: Doc | None, request: Doc | None) -> None:
    """Packets of both directions together are another provider's business than those of one."""
    both = PACKETS["any"]
    ways = [{name for group in _groups(each) for name in group["resources"]} & _KINDS[1] for each in (had, request)]
    if all(ways) and (both in ways[0]) != (both in ways[1]):
        text = (
            "Changing from direction-less QoS minimum packet rate rule to a direction-oriented minimum packet rate rule,"
            " or vice versa, is not supported."
        )
        raise NeutronFault(501, "NotImplementedError", text)


def too_much(changes: Sequence[GuaranteeChange]) -> NeutronFault:
    """In Neutron's words."""
    diff: dict[str, dict[str, int]] = {}
    for each in (amount for change in changes for amount in change.amounts):
        diff.setdefault(each.provider, {})[each.resource] = each.now - each.was
    text = (
        f"Updating placement allocation with {diff} for consumer {', '.join(sorted({each.server for each in changes}))} failed."
        " The requested resources would exceed the capacity available."
    )
    return conflict("QosPlacementAllocationUpdateConflict", text)


def not_here(changes: Sequence[GuaranteeChange]) -> NeutronFault:
    """This process has no way to placement."""
    text = f"Rule is not supported by port {changes[0].port}: it is bound, and its guaranteed resources are claimed"
    return conflict("QosRuleNotSupported", text)
