"""Reads what an audit compares: the services' lists once for each pass, servers page by page.

A page is a range of ids: the region and every cell return a number of rows, and the range ends where the first of them
reached its limit. So memory and statements depend on the page size; only the services' lists of ports and attachments
are read whole.
"""

import bisect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.conductor.reconcilers.orphan_attachments import going
from moorage.model.errors import Invalid, NotFound, Problem
from moorage.model.guest import PowerState
from moorage.model.guest_devices import GuestDevices
from moorage.model.ids import CellId, HostId, ServerId
from moorage.model.migration import Migration
from moorage.model.network import Port
from moorage.model.volume import IN_USE, Attachment, Volume
from moorage.operations.context import SagaContext
from moorage.operations.volumes.detach_volume import DETACHING
from moorage.sql import Tx
from moorage.store.cell import audit_reads as cell_audited
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell.audit_reads import Living
from moorage.store.cell.migrations import MoveState
from moorage.store.region import audit_reads, hidden_records

T = TypeVar("T")

PAGE = 500
FEW = 50
"""Up to this many servers are read one by one from the services; for more, the whole lists are read."""
MOVED_SINCE_US = 24 * 3600 * 1_000_000
VOLUMES_SHOWN_MAX = 500
"""Volumes of guests whose devices differ that are read, each with a call; of further ones nothing is concluded."""
BINDINGS_MAX = 1_000
"""For how many servers the ports' bindings are read: each port is a call."""

logger = logging.getLogger(__name__)


class GuestReportSource(Protocol):
    """The guests that hosts reported: the cell conductors of this process."""

    def seen(self) -> tuple[Mapping[str, Mapping[ServerId, PowerState]], Mapping[str, str]]:
        """Host → its guests and their power; and cells whose hosts this process does not receive, with the reason."""
        ...

    async def differing(self) -> Mapping[str, Mapping[ServerId, GuestDevices]]:
        """Host → guests whose devices are not those of their records, with what they have."""
        ...

    async def ask_again(self, hosts: Collection[str]) -> Collection[str]:
        """Ask these hosts for their guests, and wait a moment; return those that have answered."""
        ...


class NoGuests:
    """This process receives no hosts."""

    def seen(self) -> tuple[Mapping[str, Mapping[ServerId, PowerState]], Mapping[str, str]]:
        return {}, {"hosts": "this process receives none"}

    async def differing(self) -> Mapping[str, Mapping[ServerId, GuestDevices]]:
        return {}

    async def ask_again(self, hosts: Collection[str]) -> Collection[str]:
        return ()


class AuditReader:
    def __init__(
        self, context: SagaContext, guests: GuestReportSource, *, ports: bool = True, page: int = PAGE
    ) -> None:
        """`ports`: whether there is a network service with ports."""
        self._context, self._guests, self._ports, self._page = context, guests, ports, page

    # -------------------------------------------------------------------------------------------- the services

    async def site(self, only: Collection[ServerId] | None = None) -> ServicesSnapshot:
        """The state of the services around the servers; `only`: what concerns these servers."""
        site = ServicesSnapshot()
        await self._context.placement.catch_up()
        world = self._context.placement.world()
        site.hosts = {HostId(host): world.names[slot] for host, slot in world.slots.items()}
        site.below = {HostId(host): frozenset(world.device_names(HostId(host))) for host in world.slots}
        few = None if only is None or len(only) > FEW else only
        if self._ports:
            site.ports = await self._or_out(site, "network", lambda: self._all_ports(few))
            subnets = None if site.ports is None else await self._or_out(site, "network", self._segments)
            if subnets is None:
                site.ports = None
            else:
                site.segments = subnets
        if self._context.volumes is not None:
            site.attachments = await self._or_out(site, "volume", lambda: self._attachments(few))
            site.going = await self._or_out(site, "volume", self._going) or {}
        site.guests, unheard = self._guests.seen()
        site.out.update(unheard)
        site.differing = await self._guests.differing()
        if self._context.volumes is not None and site.attachments is not None:
            site.volumes = await self._or_out(site, "volume", lambda: self._volumes_of_guests(site)) or {}
            site.exported = await self._or_out(site, "volume", lambda: self._exported(site, few)) or {}
        return site

    async def _volumes_of_guests(self, site: ServicesSnapshot) -> dict[str, Volume | None]:
        """The volumes of guests that differ, at most `VOLUMES_SHOWN_MAX`."""
        assert self._context.volumes is not None
        has = {
            each.volume for guests in site.differing.values() for devices in guests.values() for each in devices.volumes
        }
        shown: dict[str, Volume | None] = {}
        for volume in sorted(has)[:VOLUMES_SHOWN_MAX]:
            try:
                shown[volume] = await self._context.volumes.show(volume)
            except (NotFound, Invalid):
                shown[volume] = None
        return shown

    async def _exported(self, site: ServicesSnapshot, few: Collection[ServerId] | None) -> dict[str, str]:
        """The hosts of attachments: from the list of volumes in use, or one by one for a few servers."""
        assert self._context.volumes is not None
        exported: dict[str, str] = {}
        if few is None:
            for each in await self._context.volumes.with_status(IN_USE):
                exported |= each.hosts
            return exported
        for volume in sorted({each.volume for held in (site.attachments or {}).values() for each in held}):
            try:
                exported |= (await self._context.volumes.show(volume)).hosts
            except NotFound:  # its attachment is judged without it
                continue
        return exported

    async def _or_out(self, site: ServicesSnapshot, name: str, read: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await read()
        except Problem as problem:
            logger.info("the audit skips the %s service: %s", name, problem)
            site.out[name] = problem.public
            return None

    async def _all_ports(self, few: Collection[ServerId] | None) -> Mapping[str, Mapping[str, Port]]:
        if few is None:
            return await self._context.network.held_by_ports()
        return {each: {port.id: port for port in await self._context.network.ports_of(each)} for each in few}

    async def _segments(self) -> dict[str, str | None]:
        return {each.id: each.segment for each in await self._context.network.subnets()}

    async def _attachments(self, few: Collection[ServerId] | None) -> dict[str, list[Attachment]]:
        assert self._context.volumes is not None
        by_server: dict[str, list[Attachment]] = {}
        if few is not None:
            return {each: list(await self._context.volumes.attachments_of(each)) for each in few}
        async for each in self._context.volumes.all_attachments():
            if each.server:
                by_server.setdefault(each.server, []).append(each)
        return by_server

    async def _going(self) -> dict[str, list[str]]:
        assert self._context.volumes is not None
        return going(await self._context.volumes.with_status(DETACHING))

    # ------------------------------------------------------------------------------------------------ servers

    async def pages(self, site: ServicesSnapshot) -> AsyncIterator[SnapshotPage]:
        """All servers, in the order of their ids."""
        devices = sorted(site.ports or ())
        guests = _by_guest(site)
        guest_ids = sorted(guests)
        site.cells = frozenset(cell for cell in self._context.cells.ids if f"cell {cell}" not in site.out)
        low = ""
        while True:
            region = await self._context.region.read(partial(_region_page, after=low, limit=self._page))
            parts: dict[CellId, _CellPart] = {}
            for cell in sorted(site.cells):
                part = await self._cell(site, cell, partial(_cell_page, after=low, limit=self._page))
                if part is not None:
                    parts[cell] = part
            ends = [*region.ends(self._page), *(end for part in parts.values() for end in part.ends(self._page))]
            high = min(ends) if ends else None
            page = _page_of(region, parts, low, high)
            page.devices = tuple(devices[_at(devices, low) : None if high is None else _at(devices, high)])
            ids = guest_ids[_at(guest_ids, low) : None if high is None else _at(guest_ids, high)]
            page.guests = {ServerId(each): guests[ServerId(each)] for each in ids}
            await self._around(site, page)
            yield page
            if high is None:
                return
            low = high

    async def among(
        self, site: ServicesSnapshot, ids: Collection[ServerId], consumers: Collection[str] = ()
    ) -> SnapshotPage:
        """These servers, and additionally the claims of these consumers."""
        site.cells = frozenset(cell for cell in self._context.cells.ids if f"cell {cell}" not in site.out)
        wanted = {*ids, *(ServerId(each) for each in consumers)}

        region_part = await self._context.region.read(partial(_region_among, ids=wanted, consumers=wanted))
        parts: dict[CellId, _CellPart] = {}
        for cell in sorted(site.cells):
            part = await self._cell(site, cell, partial(_cell_among, ids=wanted))
            if part is not None:
                parts[cell] = part
        page = _page_of(region_part, parts, "", None)
        page.devices = tuple(each for each in sorted(wanted) if each in (site.ports or ()))
        page.guests = {id: hosts for id, hosts in _by_guest(site).items() if id in wanted}
        await self._around(site, page)
        return page

    async def _cell(self, site: ServicesSnapshot, cell: CellId, work: Callable[[Tx], T]) -> T | None:
        try:
            return await self._context.cells[cell].read(work)
        except Problem as problem:
            site.out[f"cell {cell}"] = problem.public
            site.cells -= {cell}
            return None

    async def _around(self, site: ServicesSnapshot, page: SnapshotPage) -> None:
        """Open migrations of these servers, and the cells' state of the moves among the consumers."""
        moves = [consumer for consumer, held in page.held.items() if held.moves]
        for cell in sorted(site.cells):
            ids = [id for id, rows in page.records.items() if any(each == cell for each, _ in rows)]
            cell_moves = (
                await self._cell(site, cell, partial(_moves_of, ids=ids, moves=moves)) if ids or moves else None
            )
            for each in () if cell_moves is None else cell_moves.moves:
                page.moves.setdefault(each.server, []).append(each)
            for uuid, state in () if cell_moves is None else cell_moves.move_states.items():
                if (
                    uuid not in page.move_states or state.is_open
                ):  # for a move between two cells, one cell that says it is open is enough
                    page.move_states[uuid] = state
        servers = {each.server for each in page.move_states.values()} - page.mapped.keys()
        consumers = {each.uuid for moves in page.moves.values() for each in moves} - page.held.keys()
        if not servers and not consumers:
            return
        near = await self._context.region.read(partial(_region_among, ids=servers, consumers=consumers))
        page.mapped |= {each.id: each for each in near.mapped}
        page.held |= {each.owner.consumer: each for each in near.held}

    async def bindings(self, site: ServicesSnapshot, moved: Collection[ServerId]) -> None:
        """Inactive bindings of the ports of servers that moved recently."""
        if site.ports is None:
            return
        inactive: dict[str, list[str]] = {}
        for server in sorted(moved):
            for port in site.ports.get(server, {}):
                left = await self._or_out(site, "bindings", partial(self._context.network.bindings, port))
                inactive[port] = [each.host for each in left or () if not each.active]
        site.inactive = {**site.inactive, **{port: hosts for port, hosts in inactive.items() if hosts}}

    async def moved_lately(self, site: ServicesSnapshot, now_us: int) -> frozenset[ServerId]:
        """Servers with a move that ended recently; at most `BINDINGS_MAX`, the newest."""
        servers: set[ServerId] = set()
        for cell in self._context.cells.ids:
            moved = await self._cell(
                site, cell, partial(cell_audited.moved_since, since_us=now_us - MOVED_SINCE_US, limit=BINDINGS_MAX)
            )
            servers |= moved or frozenset()
        return frozenset(sorted(servers)[:BINDINGS_MAX])


class _RegionPart:
    def __init__(
        self,
        mapped: list[audit_reads.Mapped],
        held: list[audit_reads.ConsumerHoldings],
        hidden: Mapping[ServerId, frozenset[CellId]],
    ) -> None:
        self.mapped, self.held, self.hidden = mapped, held, hidden

    def ends(self, limit: int) -> list[str]:
        """The last id, when the limit of rows was reached."""
        last_ids = [self.mapped[-1].id] if len(self.mapped) >= limit else []
        return [*last_ids, self.held[-1].owner.consumer] if len(self.held) >= limit else [*last_ids]


class _CellPart:
    def __init__(self, living: list[Living], gone: list[tuple[ServerId, int]]) -> None:
        self.living, self.gone = living, gone

    def ends(self, limit: int) -> list[str]:
        last_ids: list[str] = [self.living[-1].server.id] if len(self.living) >= limit else []
        return [*last_ids, self.gone[-1][0]] if len(self.gone) >= limit else last_ids


def _region_page(tx: Tx, after: str, limit: int) -> _RegionPart:
    mapped = audit_reads.mapped(tx, after, limit)
    hidden = hidden_records.open_of(tx, [each.id for each in mapped])
    return _RegionPart(mapped, audit_reads.held(tx, after, limit), hidden)


def _cell_page(tx: Tx, after: str, limit: int) -> _CellPart:
    return _CellPart(cell_audited.living(tx, after, limit), cell_audited.gone(tx, after, limit))


def _cell_among(tx: Tx, ids: Collection[str]) -> _CellPart:
    return _CellPart(cell_audited.living_among(tx, ids), cell_audited.gone_among(tx, ids))


def _region_among(tx: Tx, ids: Collection[str], consumers: Collection[str]) -> _RegionPart:
    hidden = hidden_records.open_of(tx, [ServerId(each) for each in ids])
    return _RegionPart(audit_reads.mapped_among(tx, ids), audit_reads.held_among(tx, consumers), hidden)


class _Moves(NamedTuple):
    moves: list[Migration]
    move_states: dict[str, MoveState]


def _moves_of(tx: Tx, ids: Collection[ServerId], moves: Collection[str]) -> _Moves:
    return _Moves(cell_audited.open_moves(tx, ids), cell_migrations.move_states(tx, list(moves)) if moves else {})


def _page_of(region: _RegionPart, parts: Mapping[CellId, _CellPart], low: str, high: str | None) -> SnapshotPage:
    def within(id: str) -> bool:
        return high is None or id <= high

    page = SnapshotPage()
    page.mapped = {each.id: each for each in region.mapped if within(each.id)}
    page.held = {each.owner.consumer: each for each in region.held if within(each.owner.consumer)}
    page.hidden = {id: cells for id, cells in region.hidden.items() if within(id)}
    for cell, part in parts.items():
        for server, sealed in part.living:
            if not within(server.id):
                continue
            if sealed:
                page.sealed.setdefault(server.id, []).append(cell)
            hidden = cell in page.hidden.get(server.id, ())
            (page.second if hidden else page.records).setdefault(server.id, []).append((cell, server))
        for id, at in part.gone:
            if within(id):
                page.gone.setdefault(id, []).append((cell, at))
    return page


def _by_guest(site: ServicesSnapshot) -> dict[ServerId, list[str]]:
    by_guest: dict[ServerId, list[str]] = {}
    for host, guests in site.guests.items():
        for each in guests:
            by_guest.setdefault(each, []).append(host)
    return by_guest


def _at(ids: list[str] | list[ServerId], after: str) -> int:
    """The index of the first id after the given one."""
    return bisect.bisect_right(ids, after)
