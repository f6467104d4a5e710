"""Flat networks: no ports, no service; each cell has a pool of addresses of each network (S0.16)."""

import ipaddress
import uuid

import msgspec

from moorage.model.ids import CellId

_NAMES = uuid.UUID("7d5c1f5a-5a0e-5d0c-8a3e-0b9f3c6f9a44")
POOL_MAX = 65_536
"""Addresses of one pool."""


class FlatPool(msgspec.Struct, frozen=True):
    """The addresses of one network in one cell."""

    network: str
    """The network's name; its id is made from it."""
    cell: CellId
    cidr: str
    first: str
    last: str
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    bridge: str = ""

    @property
    def network_id(self) -> str:
        return flat_id(self.network)

    @property
    def subnet_id(self) -> str:
        return flat_id(f"{self.network}/{self.cell}")

    @property
    def size(self) -> int:
        return int(ipaddress.ip_address(self.last)) - int(ipaddress.ip_address(self.first)) + 1

    def address(self, slot: int) -> str:
        """The address in a slot, counted from the first."""
        return str(ipaddress.ip_address(self.first) + slot)

    def slot(self, address: str) -> int | None:
        """Return the slot of an address; None: it is not in the pool."""
        try:
            wanted = ipaddress.ip_address(address)
        except ValueError:
            return None
        slot = int(wanted) - int(ipaddress.ip_address(self.first))
        return slot if wanted.version == 4 and 0 <= slot < self.size else None


class AddressLease(msgspec.Struct, frozen=True):
    """One address of a pool, held by one NIC of a server."""

    server: str
    nic: int
    network: str
    """The network's id."""
    cell: CellId
    slot: int
    mac: str
    host: str = ""


class AddressRequest(msgspec.Struct, frozen=True):
    """A NIC that wants an address of a pool."""

    nic: int
    mac: str
    pool: FlatPool
    slot: int | None = None
    """The slot of the address that was asked for; None: any."""


class Exhausted(msgspec.Struct, frozen=True):
    """Reports that no address is left for this NIC, or that the wanted one is in use."""

    nic: int
    pool: FlatPool
    slot: int | None = None


def flat_id(name: str) -> str:
    """Make the network's id from its name; it is the same in every process and after every start."""
    return str(uuid.uuid5(_NAMES, name))


def vif_id(server: str, nic: int) -> str:
    """Make the id of a NIC without a port."""
    return flat_id(f"{server}/nic/{nic}")


def completed(pool: FlatPool) -> FlatPool:
    """A pool in which `first`, `last` and `gateway` are filled in where they are empty.

    The first address of the network is the gateway, and the others are given out.
    Raises ValueError when the pool cannot be meant so.
    """
    cidr = pool.cidr
    net = ipaddress.ip_network(cidr)
    if net.version != 4:
        raise ValueError(f"{cidr}: pools of flat networks are IPv4")
    if net.num_addresses < 4:
        raise ValueError(f"{cidr} has no address to give out")
    door = ipaddress.ip_address(pool.gateway) if pool.gateway else net[1]
    begin = ipaddress.ip_address(pool.first) if pool.first else net[2]
    end = ipaddress.ip_address(pool.last) if pool.last else net[-2]
    for each in (door, begin, end):
        if each not in net:
            raise ValueError(f"{each} is not in {cidr}")
    if not 0 <= int(end) - int(begin) < POOL_MAX:
        raise ValueError(f"from {begin} to {end}: a pool has 1 to {POOL_MAX} addresses")
    if int(begin) <= int(door) <= int(end):
        raise ValueError(f"the gateway {door} is among the addresses to give out")
    return msgspec.structs.replace(pool, first=str(begin), last=str(end), gateway=str(door))
