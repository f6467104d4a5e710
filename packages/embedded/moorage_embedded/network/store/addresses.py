"""Addresses: free ranges are rows, so taking the next free one costs the same on a /29 and a /8, and never doubles.

A row of `free_ranges` is narrowed by one guarded UPDATE (the row's lock makes rivals wait); `addresses` has the subnet and
the address as its key, so even an address outside every pool cannot be held twice.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any, cast

import sqlalchemy as sa

from moorage.sql import Tx
from moorage_embedded.network.store.tables import addresses, free_ranges, ports

# Offsets are 64-bit; what lies beyond in an IPv6 subnet can be asked for by address, but is never handed out.
OFFSET_MAX = 2**62
RACES_MAX = 50

_TAKE = sa.text(
    'UPDATE network_free_ranges SET "first" = "first" + 1 WHERE subnet = :subnet AND "first" ='
    ' (SELECT min("first") FROM network_free_ranges WHERE subnet = :subnet) AND "first" < "last" RETURNING "first" - 1'
)
_TAKE_LAST_OF_RANGE = sa.text(
    'DELETE FROM network_free_ranges WHERE subnet = :subnet AND "first" ='
    ' (SELECT min("first") FROM network_free_ranges WHERE subnet = :subnet) AND "first" = "last" RETURNING "first"'
)
_ANY_FREE = sa.select(free_ranges.c.first).where(free_ranges.c.subnet == sa.bindparam("subnet")).limit(1)
_CUT = sa.text(
    'DELETE FROM network_free_ranges WHERE subnet = :subnet AND "first" <= :offset AND "last" >= :offset'
    ' RETURNING "first", "last"'
)
_FREE = sa.text(
    'INSERT INTO network_free_ranges (subnet, "first", "last") VALUES (:subnet, :first, :last) ON CONFLICT DO NOTHING'
)
_NOTE = sa.text(
    "INSERT INTO network_addresses (subnet, address, port) VALUES (:subnet, :address, :port)"
    " ON CONFLICT DO NOTHING RETURNING address"
)
_FORGET = (
    sa.delete(addresses)
    .where(
        addresses.c.subnet == sa.bindparam("b_subnet"),
        addresses.c.address == sa.bindparam("b_address"),
        addresses.c.port == sa.bindparam("b_port"),
    )
    .returning(addresses.c.address)
)
_FORGET_PORT = (
    sa.delete(addresses)
    .where(addresses.c.port == sa.bindparam("b_port"))
    .returning(addresses.c.subnet, addresses.c.address)
)


class Addresses:
    """Which address is whose."""

    tx: Tx

    def take_offset(self, subnet: str) -> int | None:
        """The next free offset of a subnet's pools, or None when there is none."""
        for _ in range(RACES_MAX):
            for statement in (_TAKE, _TAKE_LAST_OF_RANGE):
                if (taken := self.tx.scalar(statement, {"subnet": subnet})) is not None:
                    return cast("int", taken)
            if self.tx.scalar(_ANY_FREE, {"subnet": subnet}) is None:
                return None
        return None

    def cut_offset(self, subnet: str, offset: int) -> None:
        """Take one given offset out of the free ranges, if it is in one."""
        if not 0 <= offset < OFFSET_MAX:
            return
        found = self.tx.row(_CUT, {"subnet": subnet, "offset": offset})
        if found is None:
            return
        first, last = found
        if first < offset:
            self.give_range(subnet, first, offset - 1)
        if offset < last:
            self.give_range(subnet, offset + 1, last)

    def give_range(self, subnet: str, first: int, last: int) -> None:
        last = min(last, OFFSET_MAX - 1)
        if first <= last:
            self.tx.run(_FREE, {"subnet": subnet, "first": first, "last": last})

    def note_address(self, subnet: str, address: str, port: str) -> bool:
        """False when another port has it."""
        return bool(self.tx.rows(_NOTE, {"subnet": subnet, "address": address, "port": port}))

    def forget_address(self, subnet: str, address: str, port: str) -> bool:
        return bool(self.tx.rows(_FORGET, {"b_subnet": subnet, "b_address": address, "b_port": port}))

    def forget_addresses(self, port: str) -> list[tuple[str, str]]:
        return [(subnet, address) for subnet, address in self.tx.rows(_FORGET_PORT, {"b_port": port})]

    def addresses_of(self, subnet: str) -> list[tuple[str, str, str]]:
        """(address, port, device owner) of each address in a subnet, as numbers go."""
        query = (
            sa.select(addresses.c.address, addresses.c.port, ports.c.owner)
            .join(ports, ports.c.id == addresses.c.port, isouter=True)
            .where(addresses.c.subnet == subnet)
        )
        found = [(address, port, owner or "") for address, port, owner in self.tx.rows(query)]
        return sorted(found, key=lambda each: int(ip_address(each[0])))

    def bound_addresses(self, subnets: Sequence[str]) -> list[tuple[str, str, str, str]]:
        """(network, address, MAC, host) of the ports in these subnets that are bound to hosts, by network and address."""
        query = (
            sa.select(ports.c.network, addresses.c.address, ports.c.mac, ports.c.host)
            .join(ports, ports.c.id == addresses.c.port)
            .where(addresses.c.subnet.in_(subnets), ports.c.host != "", ports.c.owner.not_like("network:%"))
            .order_by(ports.c.network, addresses.c.address)
        )
        return [(network, address, mac, host) for network, address, mac, host in self.tx.rows(query)]

    def count_addresses(self, subnets: Iterable[str]) -> dict[str, int]:
        query = (
            sa.select(addresses.c.subnet, sa.func.count())
            .where(addresses.c.subnet.in_(list(subnets)))
            .group_by(addresses.c.subnet)
        )
        return {row[0]: row[1] for row in self.tx.rows(query)}

    def count_foreign(self, subnets: Sequence[str]) -> dict[str, int]:
        """Addresses held by ports that are no server's: they are gone from what a server may claim."""
        query = (
            sa.select(addresses.c.subnet, sa.func.count())
            .join(ports, ports.c.id == addresses.c.port)
            .where(addresses.c.subnet.in_(subnets), ports.c.owner.not_like("compute:%"))
            .group_by(addresses.c.subnet)
        )
        return {row[0]: row[1] for row in self.tx.rows(query)}

    def reset_ranges(self, subnet: str, ranges: Iterable[tuple[int, int]]) -> None:
        """Replace a subnet's free ranges; the caller has left out what is held."""
        self.tx.run(sa.delete(free_ranges).where(free_ranges.c.subnet == subnet))
        rows: list[dict[str, Any]] = [
            {"subnet": subnet, "first": first, "last": min(last, OFFSET_MAX - 1)}
            for first, last in ranges
            if first < OFFSET_MAX
        ]
        if rows:
            self.tx.run(sa.insert(free_ranges), rows)
