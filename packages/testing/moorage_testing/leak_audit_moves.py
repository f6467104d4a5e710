"""What servers that were moved have on the host that they left, until that is confirmed or reverted: part of the census."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from moorage.model.migration import Migration, MigrationStatus
from moorage.model.network_providers import GUARANTEED
from moorage.model.resources import IPV4_ADDRESS

VERIFY = "VERIFY_RESIZE"
MAY_WAIT = frozenset({VERIFY, "ERROR"})
"""Statuses of a server that can be confirmed or reverted; the second is set by an administrator."""


class Left(msgspec.Struct, frozen=True):
    """One server's."""

    move: str
    """The UUID of the move, which is the consumer of what is held there."""
    host: str
    vcpus: int
    ram_mib: int


class CellRecord(msgspec.Struct, frozen=True):
    """A record of a server in one cell."""

    server: str
    cell: str
    sealed: bool


def wrong_seconds(
    records: Iterable[CellRecord], shown: Mapping[str, str | None], hidden: Collection[tuple[str, str]]
) -> list[str]:
    """Of servers that moved between cells: a second record is sealed, and the region says that it is not shown; and nothing else is.

    `shown`: the cell that the region names; `hidden`: (server, cell) of what it says is not shown.
    """
    wrong: list[str] = []
    there = {(each.server, each.cell): each for each in records}
    for each in there.values():
        named = shown.get(each.server)
        if named == each.cell and (each.sealed or (each.server, each.cell) in hidden):
            wrong.append(
                f"the record of {each.server} in {each.cell}, which is the one that is shown, is sealed or hidden"
            )
        elif named != each.cell and not (each.sealed and (each.server, each.cell) in hidden):
            wrong.append(f"{each.server} has a record in {each.cell}, which is not hidden, and is shown in {named}")
    wrong += [
        f"a record of {server} in {cell} is hidden, and there is none"
        for server, cell in hidden
        if (server, cell) not in there
    ]
    return wrong


def left_of(moves: Iterable[Migration], statuses: Mapping[str, str]) -> dict[str, Left]:
    """Server → what it has on the host that it left, by the records of moves that are not ended."""
    found: dict[str, Left] = {}
    for each in moves:
        old = each.old_flavor
        if each.status is MigrationStatus.FINISHED and old is not None and statuses.get(each.server) in MAY_WAIT:
            found[each.server] = Left(each.uuid, each.source_host, old.vcpus, old.ram_mib)
    return found


def wrong_records(
    moves: Iterable[Migration],
    hosts: Mapping[str, str | None],
    statuses: Mapping[str, str],
    left: Mapping[str, Left],
) -> list[str]:
    """A move that is not ended is one that waits to be confirmed or reverted; `hosts`: where servers are."""
    wrong: list[str] = []
    for each in moves:
        if each.server not in left or left[each.server].move != each.uuid:
            status = statuses.get(each.server, "gone")
            wrong.append(f"the move {each.uuid} of {each.server}, which is {status}, is {each.status.value}")
    wrong += [
        f"{server} is {VERIFY}, and no move of it is recorded"
        for server, status in statuses.items()
        if status == VERIFY and server not in left
    ]
    wrong += [
        f"{server} has left {each.host}, and is there"
        for server, each in left.items()
        if server in hosts and hosts[server] == each.host
    ]
    return wrong


def wrong_claims(
    left: Mapping[str, Left],
    claims: Mapping[str, Mapping[tuple[str, str], int]],
    wanted: Mapping[str, Counter[tuple[str, str]]],
) -> list[str]:
    """The move holds the old size, and as many guarantees as the server does; for addresses see `check_addresses`."""
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


def check_addresses(
    left: Mapping[str, Left], claims: Mapping[str, Mapping[tuple[str, str], int]], server: str
) -> dict[tuple[str, str], int]:
    """Of segments that it left: its ports keep them for a revert, and its move holds them."""
    held = claims.get(left[server].move, {}) if server in left else {}
    return {key: amount for key, amount in held.items() if key[1] == IPV4_ADDRESS}


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
