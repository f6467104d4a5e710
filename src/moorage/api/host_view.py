"""Hosts of all cells, as `os-services`, `os-hypervisors`, zones and aggregates look at them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from moorage.api.call import AnyCall
from moorage.api.timestamps import now_us
from moorage.model.errors import NotFound, Unavailable
from moorage.model.host import Host
from moorage.model.server import Server
from moorage.operations.shown_records import Ask, CellQuery, EveryCell
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import aggregates

log = logging.getLogger(__name__)


async def every_host(call: AnyCall) -> tuple[list[Host], list[str]]:
    """(the hosts of all cells that answer, by name; the names of the cells that do not)."""
    cells = call.context.cells
    answers = await asyncio.gather(*(each.read(cell_hosts.listed) for each in cells.values()), return_exceptions=True)
    hosts: list[Host] = []
    out: list[str] = []
    for name, answer in zip(cells, answers, strict=True):
        if isinstance(answer, Unavailable):
            log.warning("cell %s does not answer: %s", name, answer.public)
            out.append(name)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            hosts.extend(answer)
    return sorted(hosts, key=lambda host: host.host), out


async def zones_of(call: AnyCall) -> dict[str, str]:
    return await call.context.region.read(aggregates.zones)


def is_up(call: AnyCall, host: Host) -> bool:
    silent_us = now_us(call.context.clock) - host.seen_at
    return not host.forced_down and silent_us <= call.context.config.service_down_s * 1e6


def zone_of(call: AnyCall, host: Host, zones: Mapping[str, str]) -> str:
    return zones.get(host.host) or host.zone or call.context.config.default_zone


async def host_named(call: AnyCall, name: str, binary: str = "nova-compute") -> tuple[Host, Database]:
    """A host and the database of its cell.  Raises NotFound, Unavailable when a cell that may have it is out."""
    place = await _in_some_cell(call, lambda tx: cell_hosts.named(tx, name))
    if place is not None:
        return place
    raise NotFound(f"Could not find binary {binary} on host {name}.")


async def _in_some_cell(call: AnyCall, look: Callable[[Tx], Host | None]) -> tuple[Host, Database] | None:
    """Of the cells that answer; raises Unavailable when none of those has it and another is out."""
    out: Unavailable | None = None
    for cell in call.context.cells.values():
        try:
            host = await cell.read(look)
        except Unavailable as problem:
            out = problem
            continue
        if host is not None:
            return host, cell
    if out is not None:
        raise out
    return None


def past_number(uuid: str) -> int:
    """The number that clients below 2.53 know a service or a hypervisor by.

    Rows are numbered by their cell, so two cells have the same numbers; these are of the UUID, and stay the same.
    """
    return int(uuid[-8:], 16) & 0x7FFFFFFF


async def by_service(call: AnyCall, service: str) -> tuple[Host, Database] | None:
    """By the service's UUID, or the number that old clients know. Raises Unavailable when a cell that may have it is out."""
    if not service.isdecimal():
        return await _in_some_cell(call, lambda tx: cell_hosts.by_service(tx, service))

    def numbered(tx: Tx) -> Host | None:
        return next((each for each in cell_hosts.listed(tx) if str(past_number(each.service)) == service), None)

    return await _in_some_cell(call, numbered)


async def servers_on(call: AnyCall, hosts: Sequence[Host]) -> dict[str, list[dict[str, str]]]:
    """Host → name and id of each of its servers."""
    names = [host.host for host in hosts]
    servers: dict[str, list[dict[str, str]]] = {name: [] for name in names}

    async def query_cell(name: str, cell: Database, look: CellQuery) -> Sequence[Server]:
        mine = [host.host for host in hosts if host.cell in {"", name}]
        return selected(await cell.read(lambda tx: _on_hosts(tx, mine)), look) if mine else []

    shown = await _every_cell(call, query_cell).rows()
    for each in shown.rows:
        servers[str(each.host)].append({"name": each.name, "uuid": each.id})
    return servers


async def servers_of(call: AnyCall, host: Host, cell: Database) -> list[Server]:
    """The servers that are shown to be on a host of that cell."""

    async def query_cell(name: str, database: Database, look: CellQuery) -> Sequence[Server]:
        is_its_cell = database is cell
        return selected(await cell.read(lambda tx: _on_hosts(tx, [host.host])), look) if is_its_cell else []

    return (await _every_cell(call, query_cell).rows()).rows


def selected(servers: Sequence[Server], look: CellQuery) -> list[Server]:
    """Those of them that are asked for."""
    return [each for each in servers if each.id not in look.without and (look.only is None or each.id in look.only)]


def _on_hosts(tx: Tx, hosts: Sequence[str]) -> list[Server]:
    """Sealed rows too: which record is shown, the region says."""
    return [each for host in hosts for each in cell_servers.on_host(tx, host, sealed=True)]


def _every_cell(call: AnyCall, ask: Ask[Server]) -> EveryCell[Server]:
    return EveryCell(call.context.region, call.context.cells, now_us(call.context.clock), ask, lambda server: server.id)
