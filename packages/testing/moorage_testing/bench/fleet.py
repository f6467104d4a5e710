"""Fleets to measure on, written straight into the region's tables: flat hosts, hosts of seven providers, hosts with equal children.

What is measured is the reading of them, so they come in with one statement per table and kind of provider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from moorage.model.ids import new_uuid
from moorage.sql import Tx
from moorage.store.region.placement import tables

HOSTS_PER_STATEMENT = 20_000


@dataclass(frozen=True)
class ProviderPart:
    """One provider of every host: what it has, and below which other part it hangs."""

    name: str
    totals: Mapping[str, int]
    above: int = 0
    traits: Sequence[str] = field(default=())


FLAT = (ProviderPart("", {"VCPU": 64, "MEMORY_MB": 262_144, "DISK_GB": 4_000}),)

NESTED = (
    ProviderPart("", {"DISK_GB": 4_000}, traits=("COMPUTE_VOLUME_MULTI_ATTACH",)),
    ProviderPart("numa0", {"VCPU": 32, "MEMORY_MB": 131_072}, traits=("HW_NUMA_ROOT",)),
    ProviderPart("numa1", {"VCPU": 32, "MEMORY_MB": 131_072}, traits=("HW_NUMA_ROOT",)),
    ProviderPart("fpga0_0", {"FPGA": 1}, 1),
    ProviderPart("fpga0_1", {"FPGA": 1}, 1),
    ProviderPart("fpga1_0", {"FPGA": 1}, 2),
    ProviderPart("fpga1_1", {"FPGA": 1}, 2),
)
"""Seven providers, as in the gate job of Placement that measures nested providers."""


def wide(children: int, amount: int = 8) -> tuple[ProviderPart, ...]:
    """A host with so many identical children."""
    return (*FLAT, *(ProviderPart(f"gpu{n}", {"PGPU": amount}) for n in range(children)))


def fill(tx: Tx, hosts: int, layout: Sequence[ProviderPart] = FLAT) -> list[str]:
    """So many hosts of one layout; their ids."""
    at = tables.stamp(tx).changed if tx.dialect == "sqlite" else tx.scalar(_NOW_POSTGRESQL)
    found: list[str] = []
    for first in range(0, hosts, HOSTS_PER_STATEMENT):
        found += _some(tx, range(first, min(first + HOSTS_PER_STATEMENT, hosts)), layout, at)
    return found


_NOW_POSTGRESQL = sa.text("SELECT pg_current_xact_id()::text::bigint")


def _some(tx: Tx, numbers: range, layout: Sequence[ProviderPart], at: int) -> list[str]:
    uuids: list[list[str]] = []
    for place, part in enumerate(layout):
        mine = [new_uuid() for _ in numbers]
        uuids.append(mine)
        parents = [None] * len(mine) if place == 0 else uuids[part.above]
        names = [f"h{n}{'_' * bool(part.name)}{part.name}" for n in numbers]
        rows = {"uuid": mine, "name": names, "parent": parents, "root": uuids[0]}
        _insert(
            tx,
            "providers (uuid, name, parent, root, generation, changed, version, updated_at)",
            "uuid, name, parent, root, 0, :at, :at, 0",
            rows,
            {"at": at},
        )
        for resource, total in part.totals.items():
            _insert(
                tx,
                "inventories (provider, class, total, reserved, ratio, min_unit, max_unit, step, cap, used, changed, version)",
                "uuid, :class, :total, 0, 1.0, 1, :total, 1, :total, 0, :at, :at",
                {"uuid": mine},
                {"class": resource, "total": total, "at": at},
            )
        for trait in part.traits:
            _insert(tx, "provider_traits (provider, trait)", "uuid, :trait", {"uuid": mine}, {"trait": trait})
    _insert(
        tx,
        "placement_hosts (provider, host, node, cell, zone, physnets, level)",
        "uuid, host, host, 'cell1', 'nova', '', 3",
        {"uuid": uuids[0], "host": [f"h{n}" for n in numbers]},
        {},
    )
    return uuids[0]


def _insert(tx: Tx, into: str, what: str, rows: Mapping[str, Sequence[Any]], constants: Mapping[str, Any]) -> None:
    """One statement for all rows: arrays on PostgreSQL, JSON on SQLite."""
    names = ", ".join(rows)
    types: list[sa.BindParameter[Any]] = [
        sa.bindparam(name, type_=sa.BigInteger if isinstance(value, int) else sa.Text)
        for name, value in constants.items()
    ]
    parameters = dict(constants)
    if tx.dialect == "postgresql":
        source = f"unnest({', '.join(':a_' + name for name in rows)}) AS s({names})"
        types += [sa.bindparam("a_" + name, type_=ARRAY(sa.Text)) for name in rows]
        parameters |= {"a_" + name: list(column) for name, column in rows.items()}
    else:
        columns = ", ".join(f"value ->> {place} AS {name}" for place, name in enumerate(rows))
        source = f"(SELECT {columns} FROM json_each(:rows)) AS s"
        parameters["rows"] = msgspec.json.encode(list(zip(*rows.values(), strict=True))).decode()
    statement = sa.text(f"INSERT INTO {into} SELECT {what} FROM {source}").bindparams(*types)
    tx.run(statement, parameters)


def wire(tx: Tx, hosts: Sequence[str], segments: int) -> list[str]:
    """So many segments with addresses for all; each host is wired to one. Their ids."""
    at = tables.stamp(tx).changed if tx.dialect == "sqlite" else tx.scalar(_NOW_POSTGRESQL)
    made = [new_uuid() for _ in range(segments)]
    rows = {"uuid": made, "name": [f"segment{n}" for n in range(segments)]}
    _insert(
        tx,
        "providers (uuid, name, parent, root, generation, changed, version, updated_at)",
        "uuid, name, NULL, uuid, 0, :at, :at, 0",
        rows,
        {"at": at},
    )
    _insert(
        tx,
        "inventories (provider, class, total, reserved, ratio, min_unit, max_unit, step, cap, used, changed, version)",
        "uuid, 'IPV4_ADDRESS', :total, 0, 1.0, 1, 1, 1, :total, 0, :at, :at",
        {"uuid": made},
        {"total": len(hosts), "at": at},
    )
    tied = {"uuid": [*made, *hosts], "aggregate": [*made, *(made[n % segments] for n in range(len(hosts)))]}
    _insert(tx, "provider_aggregates (provider, aggregate)", "uuid, aggregate", tied, {})
    return made
