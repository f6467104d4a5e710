"""Aggregates: administrators create, rename, fill and describe them.

A host is in at most one availability zone, and servers keep the zone that they were given. Membership is copied to the
hosts' resource providers in the same transaction, so placement never disagrees.
"""

from collections.abc import Mapping, Sequence

import msgspec

from moorage.model.aggregate import ZONE_KEY, Aggregate
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.sql import Database, Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import aggregates
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.tables import stamp


async def create(region: Database, new: Aggregate) -> Aggregate:
    """Create an aggregate. Raises Conflict for a taken name."""
    return await region.write(lambda tx: aggregates.add(tx, new))


async def delete(region: Database, number: int) -> None:
    """Delete an empty aggregate. Raises NotFound; Invalid when it has hosts."""

    def work(tx: Tx) -> None:
        aggregate = aggregates.get(tx, number, to_change=True)
        if aggregate.hosts:
            raise Invalid(f"Cannot remove host from aggregate {number}. Reason: Host aggregate is not empty.")
        aggregates.remove(tx, number)

    await region.write(work)


async def update(
    region: Database,
    cells: Mapping[str, Database],
    number: int,
    now: int,
    *,
    name: str | None = None,
    metadata: Mapping[str, str | None],
) -> Aggregate:
    """Rename it, and set keys of its metadata (None removes one). Raises NotFound, Conflict and Invalid when a zone
    would change that it may not.
    """
    if ZONE_KEY in metadata:
        await _refuse_moving_servers(region, cells, number, metadata[ZONE_KEY])

    def work(tx: Tx) -> Aggregate:
        aggregate = aggregates.get(tx, number, to_change=True)
        if ZONE_KEY in metadata:
            _refuse_two_zones(tx, aggregate, aggregate.hosts, metadata[ZONE_KEY], "update")
        kept = {key: value for key, value in aggregate.metadata.items() if key not in metadata}
        given = {key: value for key, value in metadata.items() if value is not None}
        changed = msgspec.structs.replace(
            aggregate, name=name or aggregate.name, metadata={**kept, **given}, updated_at=now
        )
        aggregates.save(tx, changed)
        if changed.metadata != aggregate.metadata:
            provider_statements.touch_hosts(tx, aggregate.hosts, stamp(tx))
        return changed

    return await region.write(work)


async def add_host(region: Database, cells: Mapping[str, Database], number: int, host: str, now: int) -> Aggregate:
    """Add the host. Raises NotFound; Conflict when the host is in it, in another zone, or has servers whose zone would
    change; Invalid for a second zone.
    """
    zone = (await region.read(lambda tx: aggregates.get(tx, number))).zone
    if zone is not None:
        await _refuse_other_zone(region, cells, host, zone, f"Cannot add host to aggregate {number}.")

    def work(tx: Tx) -> Aggregate:
        aggregate = aggregates.get(tx, number, to_change=True)
        if host in aggregate.hosts:
            raise Conflict(f"Aggregate {number} already has host {host}.")
        if aggregate.zone is not None:
            _refuse_two_zones(tx, aggregate, (host,), aggregate.zone, "add")
        changed = msgspec.structs.replace(aggregate, hosts=(*aggregate.hosts, host), updated_at=now)
        aggregates.save(tx, changed)
        _mirror(tx, host, add=aggregate.id)
        return changed

    return await region.write(work)


async def remove_host(region: Database, cells: Mapping[str, Database], number: int, host: str, now: int) -> Aggregate:
    """Remove the host. Raises NotFound; Conflict when the host has servers whose zone would change."""
    aggregate = await region.read(lambda tx: aggregates.get(tx, number))
    if aggregate.zone is not None and host in aggregate.hosts:
        zone = await region.read(lambda tx: _zone_of(tx, host, but=number))
        if zone != aggregate.zone and await _servers_on(cells, host):
            raise Conflict(
                f"Cannot remove host from aggregate {number}. Reason: The availability zone of host {host} would change from "
                f"'{aggregate.zone}' to {repr(zone) if zone else 'the default'}, and it has servers."
            )
    return await region.write(lambda tx: take_out(tx, number, host, now))


def take_out(tx: Tx, number: int, host: str, now: int) -> Aggregate:
    """Remove a host from an aggregate, inside a transaction of the region. Raises NotFound when it is not in it."""
    aggregate = aggregates.get(tx, number, to_change=True)
    if host not in aggregate.hosts:
        raise NotFound(f"Cannot remove host {host} in aggregate {number}")
    changed = msgspec.structs.replace(
        aggregate, hosts=tuple(each for each in aggregate.hosts if each != host), updated_at=now
    )
    aggregates.save(tx, changed)
    _mirror(tx, host, drop=aggregate.id)
    return changed


def _mirror(tx: Tx, host: str, *, add: str | None = None, drop: str | None = None) -> None:
    """Every host's provider gets a new stamp: decisions that used the old membership must be repeated (RULES §21)."""
    at = stamp(tx)
    for provider in provider_statements.providers_named_hosts(tx, [host]):
        have = provider_statements.aggregates_of(tx, provider)
        want = (have | ({add} if add else set())) - ({drop} if drop else set())
        if want == have:
            provider_statements.touch(tx, provider, at)
        else:
            provider_statements.advance(tx, provider, at)
            provider_statements.set_aggregates(tx, provider, have, want)


def _refuse_two_zones(tx: Tx, aggregate: Aggregate, hosts: Sequence[str], zone: str | None, doing: str) -> None:
    others = sorted(
        {
            each.zone
            for each in aggregates.every(tx)
            if each.number != aggregate.number and each.zone and each.zone != zone and set(each.hosts) & set(hosts)
        }
    )
    if others and doing == "add":
        raise Conflict(
            f"Cannot add host to aggregate {aggregate.number}. Reason: One or more hosts already in availability zone(s) "
            f"{others}."
        )
    if others:
        raise Invalid(
            f"Cannot update aggregate {aggregate.number}. Reason: One or more hosts already in availability zone(s) {others}."
        )


def _zone_of(tx: Tx, host: str, *, but: int | None = None) -> str | None:
    """The zone that aggregates give a host."""
    return next(
        (each.zone for each in aggregates.every(tx) if each.zone and each.number != but and host in each.hosts), None
    )


async def _servers_on(cells: Mapping[str, Database], host: str) -> bool:
    """Whether the host has servers; also those that are about to be shown in another cell, or are shown there and may
    come back.
    """
    for cell in cells.values():
        if await cell.read(lambda tx: cell_servers.on_host(tx, host, sealed=True)):
            return True
    return False


async def _refuse_other_zone(region: Database, cells: Mapping[str, Database], host: str, zone: str, doing: str) -> None:
    now = await region.read(lambda tx: _zone_of(tx, host))
    if now is None and await _servers_on(cells, host):  # a second zone is refused for every host, below
        raise Conflict(
            f"{doing} Reason: The availability zone of host {host} would change from the default to '{zone}', and it has servers."
        )


async def _refuse_moving_servers(
    region: Database, cells: Mapping[str, Database], number: int, zone: str | None
) -> None:
    aggregate = await region.read(lambda tx: aggregates.get(tx, number))
    if zone is None or zone == aggregate.zone:
        return
    for host in aggregate.hosts:
        if await _servers_on(cells, host):
            raise Invalid(
                f"Cannot update aggregate {number}. Reason: One or more hosts contain instances in this zone."
            )
