"""Addresses of flat networks: the NIC of a server that has a slot of its cell's pool (S0.16)."""

import random
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from moorage.model.flat_network import AddressLease, AddressRequest, Exhausted, FlatPool
from moorage.model.ids import CellId
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.tables import region_metadata

TRIES_MAX = 32
"""How many slots are tried for one NIC; each lost one went to another request meanwhile."""

flat_addresses = sa.Table(
    "flat_addresses",
    region_metadata,
    sa.Column("network", sa.String(36), primary_key=True),
    sa.Column("cell", sa.String(64), primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("server", sa.String(36), nullable=False),
    sa.Column("nic", sa.Integer, nullable=False),
    sa.Column("mac", sa.String(17), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.UniqueConstraint("server", "nic"),
)


def take(tx: Tx, server: str, host: str, wants: Sequence[AddressRequest]) -> tuple[AddressLease, ...] | Exhausted:
    """Give every NIC an address of its pool; a NIC keeps the one it had if that is of this pool. If one NIC gets none,
    no NIC does, and the result names it.
    """
    had = {lease.nic: lease for lease in of_server(tx, server)}
    leases: list[AddressLease] = []
    for want in sorted(
        wants, key=lambda want: want.slot is None
    ):  # NICs without a wish come last, so that they do not take a wished slot
        kept = had.get(want.nic)
        if kept is not None and _serves(kept, want):
            leases.append(_move(tx, kept, host))
            continue
        if kept is not None:
            give_back(tx, server, (want.nic,))
        lease = _take_one(tx, server, host, want)
        if lease is None:
            tx.refuse(Exhausted(want.nic, want.pool, want.slot))
        else:
            leases.append(lease)
    places = [want.nic for want in wants]
    return tuple(sorted(leases, key=lambda lease: places.index(lease.nic)))


def _serves(kept: AddressLease, want: AddressRequest) -> bool:
    same = (kept.network, kept.cell) == (want.pool.network_id, want.pool.cell)
    return same and want.slot in {None, kept.slot}


def _take_one(tx: Tx, server: str, host: str, want: AddressRequest) -> AddressLease | None:
    """Take the requested slot, or any free one; a request that finds another's row in its slot tries the next."""
    dice = random.Random(f"{server}/{want.nic}")
    for _ in range(TRIES_MAX):
        taken = _taken(tx, want.pool)
        wished = range(want.pool.size) if want.slot is None else (want.slot,)
        free = [slot for slot in wished if slot not in taken]
        if not free:
            return None
        row = {
            "network": want.pool.network_id,
            "cell": str(want.pool.cell),
            "slot": dice.choice(free),
            "server": server,
            "nic": want.nic,
            "mac": want.mac,
            "host": host,
        }
        statement = insert(tx.dialect, flat_addresses).values(row).on_conflict_do_nothing()
        made = tx.row(statement.returning(*flat_addresses.c))
        if made is not None:
            return _lease(made)
    return None


def _taken(tx: Tx, pool: FlatPool) -> set[int]:
    in_pool = (flat_addresses.c.network == pool.network_id) & (flat_addresses.c.cell == str(pool.cell))
    return {row[0] for row in tx.rows(sa.select(flat_addresses.c.slot).where(in_pool))}


def _move(tx: Tx, lease: AddressLease, host: str) -> AddressLease:
    if lease.host == host:
        return lease
    mine = (flat_addresses.c.server == lease.server) & (flat_addresses.c.nic == lease.nic)
    return _lease(tx.row(flat_addresses.update().where(mine).values(host=host).returning(*flat_addresses.c)))


def give_back(tx: Tx, server: str, nics: Collection[int] | None = None) -> None:
    """Release the addresses of these NICs, or all of the server's; absent ones count as released."""
    mine = flat_addresses.c.server == server
    if nics is not None:
        mine &= flat_addresses.c.nic.in_(nics)
    tx.run(flat_addresses.delete().where(mine))


def of_server(tx: Tx, server: str) -> list[AddressLease]:
    query = sa.select(flat_addresses).where(flat_addresses.c.server == server).order_by(flat_addresses.c.nic)
    return [_lease(row) for row in tx.rows(query)]


def holder(tx: Tx, pool: FlatPool, slot: int) -> str | None:
    """The server that has this address."""
    in_pool = (flat_addresses.c.network == pool.network_id) & (flat_addresses.c.cell == str(pool.cell))
    row = tx.row(sa.select(flat_addresses.c.server).where(in_pool & (flat_addresses.c.slot == slot)))
    return None if row is None else str(row.server)


def every(tx: Tx) -> list[AddressLease]:
    """All leases."""
    return [_lease(row) for row in tx.rows(sa.select(flat_addresses))]


def give_back_exactly(tx: Tx, leases: Sequence[AddressLease]) -> int:
    """Release those of the leases that are unchanged; return how many."""
    went = 0
    for lease in leases:
        conditions = {
            "server": lease.server,
            "nic": lease.nic,
            "network": lease.network,
            "slot": lease.slot,
            "host": lease.host,
        }
        same = sa.and_(
            flat_addresses.c.cell == str(lease.cell), *(flat_addresses.c[name] == it for name, it in conditions.items())
        )
        went += tx.row(flat_addresses.delete().where(same).returning(flat_addresses.c.server)) is not None
    return went


def _lease(row: Any) -> AddressLease:
    return AddressLease(row.server, row.nic, row.network, CellId(row.cell), row.slot, row.mac, row.host)
