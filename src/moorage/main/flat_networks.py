"""Flat networks of a region: the configured pools, and the region's records of which server holds which address."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from moorage.clients.network.flat import FlatNetwork
from moorage.main.config import Config
from moorage.model.errors import Invalid
from moorage.model.flat_network import AddressLease, AddressRequest, Exhausted, FlatPool, completed
from moorage.model.ids import CellId
from moorage.placement.engine import Engine
from moorage.sql import Database, label
from moorage.store.region import flat_addresses


@dataclass(frozen=True)
class FlatAddressBook:
    """`clients.network.flat.AddressBook`: one commit for all NICs of a server."""

    region: Database

    async def take(
        self, server: str, host: str, wants: Sequence[AddressRequest]
    ) -> tuple[AddressLease, ...] | Exhausted:
        with label("bind_ports"):
            return await self.region.write(lambda tx: flat_addresses.take(tx, server, host, wants))

    async def give_back(self, server: str, nics: Collection[int] | None = None) -> None:
        with label("release_ports"):
            await self.region.write(lambda tx: flat_addresses.give_back(tx, server, nics))

    async def of_server(self, server: str) -> Sequence[AddressLease]:
        return await self.region.read(lambda tx: flat_addresses.of_server(tx, server))

    async def holder(self, pool: FlatPool, slot: int) -> str | None:
        return await self.region.read(lambda tx: flat_addresses.holder(tx, pool, slot))

    async def every(self) -> Sequence[AddressLease]:
        return await self.region.read(flat_addresses.every)

    async def give_back_exactly(self, leases: Sequence[AddressLease]) -> int:
        with label("release_ports"):
            return await self.region.write(lambda tx: flat_addresses.give_back_exactly(tx, leases))


def pools_of(config: Config) -> tuple[FlatPool, ...]:
    """Return the configured pools with their defaults. Raises Invalid for one that makes no sense."""
    pools: list[FlatPool] = []
    cells = {cell.name for cell in config.cells}
    for each in config.network.pools:
        if each.cell not in cells:
            raise Invalid(f"[[network.pools]] {each.network}: there is no cell {each.cell}")
        try:
            pool = completed(
                FlatPool(
                    each.network, CellId(each.cell), each.cidr, each.first, each.last, each.gateway, each.dns, each.bridge
                )
            )  # fmt: skip
        except ValueError as wrong:
            raise Invalid(f"[[network.pools]] {each.network} in {each.cell}: {wrong}") from wrong
        if any((pool.network, pool.cell) == (other.network, other.cell) for other in pools):
            raise Invalid(
                f"[[network.pools]] {each.network} has two pools in {each.cell}: one network, one pool a cell"
            )
        pools.append(pool)
    return tuple(pools)


def open_flat(config: Config, region: Database, engine: Engine) -> FlatNetwork:
    """Open the flat network of a cloud without a network service."""

    def cell_of(host: str) -> CellId | None:
        world = engine.world()
        slot = world.slots_by_name.get(host)
        return None if slot is None else world.cell_names[world.cell[slot]]

    return flat_network(config, region, cell_of)


def flat_network(config: Config, region: Database, cell_of: Callable[[str], CellId | None]) -> FlatNetwork:
    """Open it for a process without a provider cache; `cell_of` returns the cell of a host."""
    return FlatNetwork(pools_of(config), FlatAddressBook(region), cell_of)
