"""Servers as the metadata service knows them: read from their cell, and kept for a moment.

A guest that starts asks twenty questions within a second; they cost one SELECT, in the cell's database.  Where a server is, is
remembered; only of one that is not known, is no longer there, or is about to move into another cell, the region is asked, which is one
SELECT more.  Facts of networks are asked of the network service only for `network_data.json`; they are kept longer, and used beyond that
while it is out.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from moorage.api.metadata.cache import AnswerCache
from moorage.model.clock import Clock
from moorage.model.errors import Conflict, NotFound, Problem, Unavailable
from moorage.model.flat_network import FlatPool
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata, interface_of_nic, metadata_of
from moorage.model.json_types import JsonObject
from moorage.model.network import NetworkFacts
from moorage.model.server import Server
from moorage.operations.records import servers as writes
from moorage.sql import Database, label
from moorage.store.cell import servers as cell_servers
from moorage.store.region import flat_addresses
from moorage.store.region import servers as region_servers

GUESTS_KEPT_MAX = 10_000
PLACES_KEPT_MAX = 100_000
PLACES_KEPT_S = 24 * 3600.0
NETWORKS_KEPT_MAX = 10_000
NETWORKS_KEPT_S = 60.0

_log = logging.getLogger(__name__)


class DynamicVendorData(Protocol):
    """Dynamic vendor data."""

    async def of(self, server: Server) -> JsonObject: ...


@dataclass(frozen=True)
class MetadataSettings:
    """The metadata service's part of the configuration."""

    kept_s: float = 15.0
    """How old an answer may be."""
    domain: str = ""
    """Appended to host names."""
    static_vendor_data: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[FlatPool, ...] = ()
    """Of flat networks, whose guests are known by their address."""


class GuestLookup:
    """Servers and their metadata, by server id or by address, cached for a moment."""

    def __init__(
        self,
        region: Database,
        cells: Mapping[str, Database],
        settings: MetadataSettings,
        clock: Clock,
        *,
        network: Callable[[str], Awaitable[NetworkFacts]],
        vendor_data: DynamicVendorData | None = None,
        decrypted: Callable[[Server], Server] = lambda server: server,
    ) -> None:
        """`decrypted`: a stored record → the record as its guest may see it."""
        self._region = region
        self._cells = cells
        self._network = network
        self._clock = clock
        self._domain = settings.domain
        self._static = dict(settings.static_vendor_data)
        self._vendor_data = vendor_data
        self._pools = settings.pools
        self._decrypted = decrypted
        monotonic, kept_s = clock.monotonic, settings.kept_s
        self._servers: AnswerCache[Server | None] = AnswerCache(monotonic, life_s=kept_s, most=GUESTS_KEPT_MAX)
        self._dynamic: AnswerCache[JsonObject] = AnswerCache(monotonic, life_s=kept_s, most=GUESTS_KEPT_MAX)
        self._addresses: AnswerCache[str | None] = AnswerCache(monotonic, life_s=kept_s, most=GUESTS_KEPT_MAX)
        self._networks: AnswerCache[NetworkFacts] = AnswerCache(
            monotonic, life_s=NETWORKS_KEPT_S, most=NETWORKS_KEPT_MAX
        )
        self._known_networks: dict[str, NetworkFacts] = {}
        self._places: AnswerCache[str | None] = AnswerCache(monotonic, life_s=PLACES_KEPT_S, most=PLACES_KEPT_MAX)

    # ------------------------------------------------------------------------------------------------ which server

    async def server(self, server: str) -> Server | None:
        """Its record in its cell, a moment old at most; None when there is none. Raises Unavailable."""
        return await self._servers.get(server, lambda: self._read(server))

    async def at(self, address: str) -> Server | None:
        """Return the server that holds an address of a flat network; None: no server, or several."""
        holder = await self._addresses.get(address, lambda: self._holder(address))
        return None if holder is None else await self.server(holder)

    async def _read(self, server: str) -> Server | None:
        """A sealed record is about to be that of another cell, or is by now: the region says which."""
        place = await self._places.get(server, lambda: self._place(server))
        record, sealed = await self._in(place, server)
        if record is None or sealed:
            self._places.forget(server)
            moved = await self._places.get(server, lambda: self._place(server))
            if moved != place:
                record, _ = await self._in(moved, server)
        if record is None:
            self._places.forget(server)
        return None if record is None or record.deleted else self._decrypted(record)

    async def _in(self, cell: str | None, server: str) -> tuple[Server | None, bool]:
        """The record there, and whether it is sealed."""
        database = None if cell is None else self._cells.get(cell)
        if database is None:
            return None, False
        with label("metadata"):
            return await database.read(lambda tx: cell_servers.get_with_seal(tx, ServerId(server)))

    async def _place(self, server: str) -> str | None:
        with label("metadata"):
            where = await self._region.read(lambda tx: region_servers.find(tx, server))
        return None if where is None else where.cell

    async def _holder(self, address: str) -> str | None:
        holders: set[str] = set()
        for pool in self._pools:
            slot = pool.slot(address)
            if slot is not None:
                holder = await self._region.read(lambda tx, p=pool, s=slot: flat_addresses.holder(tx, p, s))  # type: ignore[misc]
                holders |= {holder} if holder is not None else set()
        if len(holders) > 1:
            _log.warning(
                "%s is held in %d cells: the server of a request cannot be found by its address", address, len(holders)
            )
        return holders.pop() if len(holders) == 1 else None

    # ------------------------------------------------------------------------------------------- its metadata

    async def metadata_of(
        self, server: Server, *, with_networks: bool = False, with_vendors: bool = False
    ) -> InstanceMetadata:
        """The metadata of a guest. Raises Unavailable when a service that it needs is out."""
        facts = await self._facts(server) if with_networks else {}
        dynamic: Mapping[str, Any] = {}
        if with_vendors and self._vendor_data is not None:
            vendors = self._vendor_data
            dynamic = await self._dynamic.get(server.id, lambda: vendors.of(server))
        return metadata_of(
            server,
            (interface_of_nic(nic, facts.get(nic.network)) for nic in server.nics),
            domain=self._domain,
            static_vendor_data=self._static,
            vendor_data=dynamic,
        )

    async def _facts(self, server: Server) -> dict[str, NetworkFacts]:
        networks: dict[str, NetworkFacts] = {}
        for network in {nic.network for nic in server.nics}:
            try:
                networks[network] = await self._networks.get(network, lambda: self._network(network))  # noqa: B023  awaited here
            except NotFound:
                continue
            except Problem as problem:
                if network not in self._known_networks:
                    raise Unavailable(
                        "What is known of the network cannot be told now.", private=str(problem)
                    ) from problem
                networks[network] = self._known_networks[network]
                continue
            self._known_networks[network] = networks[network]
            while len(self._known_networks) > NETWORKS_KEPT_MAX:
                del self._known_networks[next(iter(self._known_networks))]
        return networks

    # ---------------------------------------------------------------------------------------------- its password

    async def store_password(self, server: Server, password: str) -> None:
        """Once. Raises Conflict when the server has one."""

        def changed(now: Server) -> Server:
            if now.guest_password:
                raise Conflict("The password was stored before.")
            return msgspec.structs.replace(now, guest_password=password)

        await writes.change(self._region, self._cells, server.id, changed, round(self._clock.now() * 1_000_000))
        self._servers.forget(server.id)
