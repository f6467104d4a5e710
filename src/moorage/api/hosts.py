"""Hosts of all cells, as `os-services`, `os-hypervisors`, zones and aggregates look at them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moorage.api.call import Call
from moorage.api.when import now_us
from moorage.model.errors import NotFound, Unavailable
from moorage.model.host import Host
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import aggregates

log = logging.getLogger(__name__)


def cells_of(call: Call[Any]) -> Mapping[str, Database]:
    return {} if call.desk.cells is None else call.desk.cells.all()


async def every_host(call: Call[Any]) -> tuple[list[Host], list[str]]:
    """(the hosts of all cells that answer, by name; the names of the cells that do not)."""
    cells = cells_of(call)
    answers = await asyncio.gather(*(each.read(cell_hosts.listed) for each in cells.values()), return_exceptions=True)
    found: list[Host] = []
    out: list[str] = []
    for name, answer in zip(cells, answers, strict=True):
        if isinstance(answer, Unavailable):
            log.warning("cell %s does not answer: %s", name, answer.public)
            out.append(name)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.extend(answer)
    return sorted(found, key=lambda host: host.host), out


async def zones_of(call: Call[Any]) -> dict[str, str]:
    return await call.desk.region.read(aggregates.zones)


def is_up(call: Call[Any], host: Host) -> bool:
    silent_us = now_us(call.desk.clock) - host.seen_at
    return not host.forced_down and silent_us <= call.desk.config.service_down_s * 1e6


def zone_of(call: Call[Any], host: Host, zones: Mapping[str, str]) -> str:
    return zones.get(host.host) or host.zone or call.desk.config.default_zone


async def host_named(call: Call[Any], name: str, binary: str = "nova-compute") -> tuple[Host, Database]:
    """A host and the database of its cell.  Raises NotFound, Unavailable when a cell that may have it is out."""
    found = await _in_some_cell(call, lambda tx: cell_hosts.named(tx, name))
    if found is not None:
        return found
    raise NotFound(f"Could not find binary {binary} on host {name}.")


async def _in_some_cell(call: Call[Any], look: Callable[[Tx], Host | None]) -> tuple[Host, Database] | None:
    """Of the cells that answer; raises Unavailable when none of those has it and another is out."""
    out: Unavailable | None = None
    for cell in cells_of(call).values():
        try:
            found = await cell.read(look)
        except Unavailable as problem:
            out = problem
            continue
        if found is not None:
            return found, cell
    if out is not None:
        raise out
    return None


def past_number(uuid: str) -> int:
    """The number that clients below 2.53 know a service or a hypervisor by.

    Rows are numbered by their cell, so two cells have the same numbers; these are of the UUID, and stay the same.
    """
    return int(uuid[-8:], 16) & 0x7FFFFFFF


async def by_service(call: Call[Any], service: str) -> tuple[Host, Database] | None:
    """By the service's UUID, or the number that old clients know. Raises Unavailable when a cell that may have it is out."""
    if not service.isdecimal():
        return await _in_some_cell(call, lambda tx: cell_hosts.by_service(tx, service))

    def numbered(tx: Tx) -> Host | None:
        return next((each for each in cell_hosts.listed(tx) if str(past_number(each.service)) == service), None)

    return await _in_some_cell(call, numbered)


async def servers_on(call: Call[Any], hosts: Sequence[Host]) -> dict[str, list[dict[str, str]]]:
    """Host → name and id of each of its servers."""
    names = [host.host for host in hosts]
    found: dict[str, list[dict[str, str]]] = {name: [] for name in names}
    for name, cell in cells_of(call).items():
        mine = [host.host for host in hosts if host.cell in {"", name}]
        for host in mine:
            servers = await cell.read(lambda tx, host=host: cell_servers.on_host(tx, host))  # type: ignore[misc]
            found[host].extend({"name": each.name, "uuid": each.id} for each in servers)
    return found
