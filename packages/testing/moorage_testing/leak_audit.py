"""What a whole cloud holds, counted where it is held: guests on hosts, ports in the network, claims and quota in SQL,
and, by `leak_audit_stores`, attachments, volumes and images that are ours.

`leaks` compares that with the servers people see; an empty answer means that nothing was lost and nothing left behind.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.main.config import Config
from moorage.model.network import minted_macs
from moorage.model.network_providers import GUARANTEED
from moorage.model.request_groups import ALLOCATION, SRIOV_NET_VF, amounts_held
from moorage.model.resources import IPV4_ADDRESS
from moorage.sql import Tx, open_database
from moorage.store.region import flat_addresses, operations, quotas
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.tables import allocations
from moorage_testing import leak_audit_moves
from moorage_testing.api_user import Person
from moorage_testing.leak_audit_moves import Left
from moorage_testing.leak_audit_stores import HeldBy, Stores, known, leaks_of, servers_named, stores_of

LOOK_EVERY_S = 0.1
SHELVED_OFFLOADED = "SHELVED_OFFLOADED"
OF_PORTS = GUARANTEED | {IPV4_ADDRESS}
PATIENCE_S = 180.0


class ShownServer(msgspec.Struct, frozen=True):
    """A server, as an administrator is shown it."""

    id: str
    status: str
    host: str | None
    project: str
    vcpus: int
    ram_mib: int
    volumes: tuple[str, ...] = ()


class Census(msgspec.Struct, frozen=True):
    servers: dict[str, ShownServer]
    guests: dict[str, list[str]]
    """Server → the hosts that have a guest of it."""
    ports: dict[str, list[dict[str, Any]]]
    """Device → its ports."""
    claims: dict[str, dict[tuple[str, str], int]]
    """Consumer → what it holds."""
    drift: list[Any]
    quota: dict[str, dict[str, int]]
    """Project → what is counted."""
    open_operations: list[str]
    segments: dict[str, str] = {}
    """Subnet → the segment it is on, of IPv4 on routed networks."""
    drives: tuple[str, ...] = ()
    """Config drives on hosts that have no such guest."""
    stores: Stores = Stores()
    left: dict[str, Left] = {}
    """Server → what it has on a host that it left, and may go back to."""
    inactive: dict[str, list[str]] = {}
    """Port → hosts on which it has inactive bindings, if it was read."""


def drives_alone(hosts: Path) -> tuple[str, ...]:
    """Config drives without their guest, below the simulated hosts' directories."""
    return tuple(
        f"{file.stem} on {file.parent.parent.name}"
        for file in sorted(hosts.glob("*/config-drives/*"))
        if not (file.parent.parent / "guests" / f"{file.stem}.json").exists()
    )


def guests_on_disk(data: Path) -> dict[str, list[str]]:
    """Server → hosts, read from the simulated hosts' directories."""
    found: dict[str, list[str]] = {}
    for file in sorted((data / "hosts").glob("*/guests/*.json")):
        found.setdefault(file.stem, []).append(file.parent.parent.name)
    return found


async def census(config: Config, admin: Person) -> Census:
    """Count everything, through public APIs where there is one."""
    region = await open_database(config.region_url(), name="census", durability=config.region.durability)
    try:
        held, drift, used, unended = await region.read(in_region_of)
        flat = await region.read(_flat) if config.network.backend == "flat" else None
        stores = await stores_of(config, admin)
        if named := servers_named(stores):
            stores = msgspec.structs.replace(stores, known=await region.read(lambda tx: known(tx, named)))
    finally:
        await region.close()
    servers = await _servers(admin)
    ports = await _ports(admin) if flat is None else flat
    segments = await _segments(admin) if flat is None else {}
    drives = drives_alone(config.data / "hosts")
    return Census(servers, guests_on_disk(config.data), ports, held, drift, used, unended, segments, drives, stores)


async def _segments(admin: Person) -> dict[str, str]:
    reply = await admin.network("GET", "/subnets", ip_version="4")
    reply.raise_for_status()
    return {each["id"]: each["segment_id"] for each in reply.json()["subnets"] if each.get("segment_id")}


async def _ports(admin: Person) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    reply = await admin.network("GET", "/ports")
    reply.raise_for_status()
    for port in reply.json()["ports"]:
        found.setdefault(port["device_id"], []).append(port)
    return found


def _flat(tx: Tx) -> dict[str, list[dict[str, Any]]]:
    """Addresses of flat networks, as ports would show them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in tx.rows(sa.select(flat_addresses.flat_addresses)):
        fields = {"binding:host_id": row.host, "mac_address": row.mac, "device_owner": "compute:", "name": ""}
        found.setdefault(row.server, []).append({"id": f"{row.server}/{row.nic}", **fields})
    return found


async def in_region(
    config: Config,
) -> tuple[dict[str, dict[tuple[str, str], int]], list[Any], dict[str, dict[str, int]], list[str]]:
    """Claims by consumer, counters that drifted, quota by project, and operations that are not ended, as SQL has them."""
    region = await open_database(config.region_url(), name="census", durability=config.region.durability)
    try:
        return await region.read(in_region_of)
    finally:
        await region.close()


def in_region_of(
    tx: Tx,
) -> tuple[dict[str, dict[tuple[str, str], int]], list[Any], dict[str, dict[str, int]], list[str]]:
    held: dict[str, dict[tuple[str, str], int]] = {}
    for row in tx.rows(sa.select(allocations)):
        held.setdefault(row.consumer, {})[row.provider, row[2]] = row.used
    projects = [row.project for row in tx.rows(sa.select(quotas.quota_usage.c.project))]
    unended = tx.rows(sa.select(operations.operations).where(operations.operations.c.ended_at.is_(None)))
    messages = [
        f"{row.saga} {row.id} of {row.server} is {row.status} {row.waiting or row.fault or ''}" for row in unended
    ]
    return held, claim_statements.drift(tx), {each: quotas.usage(tx, each) for each in projects}, messages


async def _servers(admin: Person) -> dict[str, ShownServer]:
    found: dict[str, ShownServer] = {}
    marker: dict[str, str] = {}
    while True:
        reply = await admin.compute("GET", "/servers/detail", all_tenants="1", soft_deleted="True", **marker)
        reply.raise_for_status()
        page = reply.json()["servers"]
        for each in page:
            found[each["id"]] = ShownServer(
                each["id"],
                each["status"],
                each["OS-EXT-SRV-ATTR:host"],
                each["tenant_id"],
                each["flavor"]["vcpus"],
                each["flavor"]["ram"],
                tuple(one["id"] for one in each.get("os-extended-volumes:volumes_attached", ())),
            )
        if "servers_links" not in reply.json():
            return found
        marker = {"marker": page[-1]["id"]}


def leaks(seen: Census) -> list[str]:
    """Everything that is not as the servers say, in sentences."""
    wrong = [f"unfinished: {each}" for each in seen.open_operations]
    wrong += [f"a counter that does not say what is held: {each}" for each in seen.drift]
    placed = {server.id: server for server in seen.servers.values() if server.host is not None}
    wrong += [
        f"{server.id} ({server.status} on {server.host}) has guests on {seen.guests.get(server.id, [])}"
        for server in placed.values()
        if seen.guests.get(server.id) != _hosts_of(server, seen.left)
    ]
    wrong += [f"a guest of no server: {each} on {hosts}" for each, hosts in seen.guests.items() if each not in placed]
    wrong += [f"a config drive of nobody: {each}" for each in seen.drives]
    moves = {each.move for each in seen.left.values()}
    shelved = {server.id for server in seen.servers.values() if server.status == SHELVED_OFFLOADED}
    wrong += [
        f"a claim of nobody: {each} {held}"
        for each, held in seen.claims.items()
        if each not in placed
        and each not in moves
        and not (each in shelved and held == _wanted_by(seen.ports.get(each, ()), seen.segments))
    ]
    wrong += [f"{each} holds nothing" for each in placed if each not in seen.claims]
    wrong += _wrong_claims(seen, placed)
    wanted = {each: _wanted_by(seen.ports.get(each, ()), seen.segments) for each in seen.left}
    wrong += leak_audit_moves.wrong_claims(seen.left, seen.claims, wanted)
    wrong += _wrong_ports(seen, placed)
    wrong += leak_audit_moves.wrong_bindings(seen.inactive, seen.ports, seen.left)
    held_by = {each.id: HeldBy(each.status, each.host, each.volumes) for each in seen.servers.values()}
    wrong += leaks_of(seen.stores, held_by)
    return wrong + _wrong_quota(seen)


def _hosts_of(server: ShownServer, left: Mapping[str, Left]) -> list[str]:
    assert server.host is not None
    return sorted({server.host, left[server.id].host} if server.id in left else {server.host})


def _wrong_claims(seen: Census, placed: dict[str, ShownServer]) -> list[str]:
    """One host for each, and as much of it as its flavor says."""
    wrong: list[str] = []
    for server, held in seen.claims.items():
        vcpus = [amount for (_, resource), amount in held.items() if resource == "VCPU"]
        if server in placed and vcpus != [placed[server].vcpus]:
            wrong.append(f"{server} holds {held}")
        if server in placed:
            claimed = Counter({key: amount for key, amount in held.items() if key[1] in OF_PORTS})
            claimed.update(leak_audit_moves.check_addresses(seen.left, seen.claims, server))
            wanted = _wanted_by(seen.ports.get(server, ()), seen.segments)
            if claimed != wanted:
                wrong.append(f"{server} holds {dict(claimed)} for its ports, which have {dict(wanted)}")
            functions = sum(amount for (_, resource), amount in held.items() if resource == SRIOV_NET_VF)
            named = sum("pci_slot" in (port.get("binding:profile") or {}) for port in seen.ports.get(server, ()))
            if functions != named:
                wrong.append(
                    f"{server} holds {functions} virtual functions, and the bindings of its ports name {named}"
                )
    return wrong


def _wanted_by(ports: Iterable[dict[str, Any]], segments: Mapping[str, str]) -> Counter[tuple[str, str]]:
    """What ports have that is claimed: addresses of segments, and guarantees of the providers that their bindings name."""
    wanted: Counter[tuple[str, str]] = Counter()
    for port in ports:
        named = (port.get("binding:profile") or {}).get(ALLOCATION)
        wanted.update(amounts_held(port.get("resource_request"), port["id"], named))
        wanted.update(
            (segments[each["subnet_id"]], IPV4_ADDRESS)
            for each in port.get("fixed_ips", ())
            if each["subnet_id"] in segments
        )
    return wanted


def _wrong_ports(seen: Census, placed: dict[str, ShownServer]) -> list[str]:
    wrong: list[str] = []
    for device, ports in seen.ports.items():
        for port in ports:
            bound = port.get("binding:host_id") or ""
            if device in placed and bound != placed[device].host:
                wrong.append(f"port {port['id']} of {device} is bound to {bound!r}, not {placed[device].host}")
            if device in seen.servers and seen.servers[device].status == SHELVED_OFFLOADED:
                if bound and "/" not in str(port["id"]):  # an address of a flat network stays where it was given
                    wrong.append(f"port {port['id']} of {device}, which is shelved, is bound to {bound!r}")
                continue
            made = device not in placed and port["mac_address"] in minted_macs(device)
            if device not in placed and (made or bound or str(port["device_owner"]).startswith("compute:")):
                wrong.append(f"port {port['id']} of no server: device {device!r}, host {bound!r}, {port['name']!r}")
    return wrong


def _wrong_quota(seen: Census) -> list[str]:
    counted: dict[str, Counter[str]] = {project: Counter() for project in seen.quota}
    for server in seen.servers.values():
        counts = counted.setdefault(server.project, Counter())
        if server.status == "SOFT_DELETED":
            continue  # it weighs nothing until it is restored
        left = seen.left.get(server.id)  # it weighs the larger of its two sizes until it is confirmed or reverted
        cores = server.vcpus if left is None else max(server.vcpus, left.vcpus)
        ram = server.ram_mib if left is None else max(server.ram_mib, left.ram_mib)
        counts.update({"instances": 1, "cores": cores, "ram": ram})
    return [
        f"project {project} is charged {seen.quota.get(project)}, and has {dict(counts)}"
        for project, counts in counted.items()
        if {name: amount for name, amount in seen.quota.get(project, {}).items() if amount} != +counts
    ]


async def nothing_leaked(config: Config, admin: Person, patience_s: float = PATIENCE_S) -> Census:
    """Wait until all is as it should be; AssertionError with what is not, when it does not become so."""
    deadline = time.monotonic() + patience_s
    while True:
        seen = await census(config, admin)
        wrong = leaks(seen)
        if not wrong:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError("\n".join(["the cloud does not add up:", *wrong]))
        await asyncio.sleep(LOOK_EVERY_S)


__all__ = ["Census", "census", "guests_on_disk", "in_region", "leaks", "nothing_leaked"]
