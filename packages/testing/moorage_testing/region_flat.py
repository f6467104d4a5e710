"""A small region without a network service: flat networks, whose addresses are held in the region's database (S0.16)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import sqlalchemy as sa
from typing_extensions import override

from moorage.clients.network.flat import FlatNetwork
from moorage.main.flat_networks import FlatAddressBook
from moorage.model.flat_network import FlatPool, completed
from moorage.model.ids import CellId, OperationId
from moorage.model.network import NicAsk, mint_mac
from moorage.model.server import Server
from moorage.operations.boot.boot import Boot
from moorage.sql import Tx
from moorage.store.region.flat_addresses import flat_addresses
from moorage_testing.region_fixture import CELLS, HOSTS, SERVER, SmallRegion, a_boot

NET = "flat-net"


def pools(*sizes: int) -> tuple[FlatPool, ...]:
    """For each cell a pool of so many addresses; 0: the cell has none."""
    return tuple(
        completed(FlatPool(NET, cell, f"10.{at}.0.0/16", f"10.{at}.1.0", f"10.{at}.1.{size - 1}", "", ()))
        for at, (cell, size) in enumerate(zip(CELLS, sizes, strict=True))
        if size
    )


class FlatRegion(SmallRegion):
    """The same hosts and cells, without a network service."""

    pools: Sequence[FlatPool] = pools(8, 8)

    @override
    async def fresh(
        self, server: Server | None, operation: OperationId, seq: int = 1, *, guarantees: bool = False
    ) -> "FlatRegion":
        await super().fresh(server, operation, seq)
        self.network.ports.clear()
        self.context = replace(self.context, network=FlatNetwork(self.pools, FlatAddressBook(self.region), _cell_of))

        def empty(tx: Tx) -> None:
            tx.run(sa.delete(flat_addresses))

        await self.region.write(empty)
        return self

    @override
    async def held(self) -> dict[str, Any]:
        leases = Counter(lease.server for lease in await FlatAddressBook(self.region).every())
        return {**await super().held(), "leases": sorted(leases.items())}


def _cell_of(host: str) -> CellId | None:
    return dict(HOSTS).get(host)


def a_flat_boot(operation: OperationId, pools: Sequence[FlatPool], address: str | None = None) -> Boot:
    """Two NICs on the flat network, the second with an address of its own choice."""
    network = pools[0].network_id
    facts = FlatNetwork(pools, FlatAddressBook(None), _cell_of)._facts  # type: ignore[arg-type]  # nothing is taken
    nics = tuple(
        NicAsk(index=at, network=network, mac=mint_mac(SERVER, at), port_security=False, address=wish)
        for at, wish in enumerate((None, address))
    )
    return msgspec.structs.replace(a_boot(operation), nics=nics, networks=facts)
