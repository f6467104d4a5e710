"""What servers that were moved have on the host that they left, until that is confirmed or reverted: part of the census."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.model.network_providers import GUARANTEED


class Left(msgspec.Struct, frozen=True):
    """One server's."""

    move: str
    """The UUID of the move, which is the consumer of what is held there."""
    host: str
    vcpus: int
    ram_mib: int


def wrong_claims(
    left: Mapping[str, Left],
    claims: Mapping[str, Mapping[tuple[str, str], int]],
    wanted: Mapping[str, Counter[tuple[str, str]]],
) -> list[str]:
    """The move holds the old size, and as many guarantees as the server does; addresses are the server's alone."""
    wrong: list[str] = []
    for server, each in left.items():
        held = claims.get(each.move, {})
        sizes = {resource: amount for (_, resource), amount in held.items() if resource in {"VCPU", "MEMORY_MB"}}
        if sizes != {"VCPU": each.vcpus, "MEMORY_MB": each.ram_mib}:
            wrong.append(
                f"the move of {server} holds {dict(held)}, and its old size is {each.vcpus} and {each.ram_mib}"
            )
        if (guarantees := _by_class(held)) != (needed := _by_class(wanted.get(server, Counter()))):
            wrong.append(f"the move of {server} holds {dict(guarantees)} for ports that need {dict(needed)}")
    return wrong


def _by_class(held: Mapping[tuple[str, str], int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, resource), amount in held.items():
        if resource in GUARANTEED:
            found[resource] += amount
    return found


def wrong_bindings(
    inactive: Mapping[str, list[str]], devices: Mapping[str, Iterable[dict[str, Any]]], left: Mapping[str, Left]
) -> list[str]:
    """Each port of a moved server has an inactive binding on the host that was left; no other port has any."""
    wrong: list[str] = []
    for device, ports in devices.items():
        for port in ports:
            has = inactive.get(port["id"], [])
            if device not in left and has:
                wrong.append(f"port {port['id']} of {device!r} has inactive bindings on {has}")
            elif device in left and has not in ([left[device].host], []):
                wrong.append(f"port {port['id']} of {device}, which left {left[device].host}, has bindings on {has}")
    return wrong
