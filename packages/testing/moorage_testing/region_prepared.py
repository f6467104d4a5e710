"""A small region's world that is prepared once and restored for each case of a proof.

Booting, shelving or moving a server before every case takes longer than most cases. So the first world is made by
executing the operations, and its result is kept: the rows of every table, and the contents of the services' dicts. Each
later world is restored from it in half a millisecond. In the same way a world can be saved at any moment of a case, and
restored for the cases that begin there.

Providers stay unchanged: no case changes them, and the scheduler's cache tracks them by stamps that only grow.
"""

import pickle
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from moorage_testing.inline_database import InlineDatabase
from moorage_testing.region_fixture import SmallRegion

INVENTORIES = "inventories"
STAYS = frozenset(
    {
        "gone",
        INVENTORIES,
        "placement_counter",
        "placement_hosts",
        "provider_aggregates",
        "provider_traits",
        "providers",
        "resource_classes",
        "traits",
    }
)
"""Tables of what providers are; of inventories, what is used is put back."""


class Tables:
    """The tables of one database whose rows a case may change.

    Their rows refer to rows of providers only, which stay: so tables can be emptied and filled in any order.
    """

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        found = raw.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        names = {name for (name,) in found}
        self._with_rows = " UNION ALL ".join(
            f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM \"{name}\")" for name in sorted(names - STAYS)
        )
        self._has_inventories = INVENTORIES in names

    def rows(self) -> dict[str, list[Any]]:
        """The rows of each table that has any; of inventories, what is used."""
        raw = self._raw
        rows = {
            name: raw.execute(f'SELECT * FROM "{name}"').fetchall()
            for (name,) in raw.execute(self._with_rows).fetchall()
        }
        if self._has_inventories:
            used = f"SELECT used, provider, class FROM {INVENTORIES} WHERE used <> 0"
            rows[INVENTORIES] = raw.execute(used).fetchall()
        return rows

    def put_back(self, kept: dict[str, list[Any]]) -> None:
        """Most tables are empty before and after a case; they are left alone."""
        raw = self._raw
        raw.execute("BEGIN IMMEDIATE")
        for (name,) in raw.execute(self._with_rows).fetchall():
            raw.execute(f'DELETE FROM "{name}"')
        for name, rows in kept.items():
            if name == INVENTORIES:
                raw.execute(f"UPDATE {INVENTORIES} SET used = 0 WHERE used <> 0")
                raw.executemany(f"UPDATE {INVENTORIES} SET used = ? WHERE provider = ? AND class = ?", rows)
            else:
                raw.executemany(f'INSERT INTO "{name}" VALUES ({_marks(rows[0])})', rows)
        raw.execute("COMMIT")


@dataclass(frozen=True)
class SavedRegion:
    """The rows of each database, and the pickled services."""

    rows: list[dict[str, list[Any]]]
    services: bytes


class PreparedRegion:
    """The same world again and again: `prove(saga, asked, PreparedRegion(small, lambda: booted(small)))`.

    For regions in memory, whose preparation puts no packages of its own in the place of theirs.
    """

    def __init__(self, small: SmallRegion, make: Callable[[], Awaitable[Any]]) -> None:
        self._small, self._make = small, make
        self._tables: list[Tables] = []
        self._made: SavedRegion | None = None
        self._held: dict[str, Any] = {}
        self._proved = False

    async def __call__(self) -> Any:
        """Made, or put back; the first that is put back must hold what the made one did."""
        small = self._small
        if self._made is None:
            await self._make()
            every = (small.region, *small.cells.values())
            self._tables = [Tables(cast("InlineDatabase", each).raw()) for each in every]
            self._made = self._saved()
            self._held = await small.held()
            return small
        self._put_back(self._made)
        if not self._proved:
            held = await small.held()
            assert held == self._held, f"the world was {self._held}, and is put back as {held}"
            self._proved = True
        return small

    def save(self) -> Any:
        """The world as it is at this moment, for `restore`."""
        return self._saved()

    def restore(self, saved: Any) -> Any:
        """The world as it was then, as often as it is wanted."""
        self._put_back(saved)
        return self._small

    def _saved(self) -> SavedRegion:
        return SavedRegion([tables.rows() for tables in self._tables], pickle.dumps(self._settings()))

    def _put_back(self, saved: SavedRegion) -> None:
        for tables, rows in zip(self._tables, saved.rows, strict=True):
            tables.put_back(rows)
        self._small.put_back(*pickle.loads(saved.services))

    def _settings(self) -> tuple[Any, ...]:
        small = self._small
        watched = {
            "watches_moves": small.watches_moves,
            "watches_addresses": small.watches_addresses,
            "watches_cells": small.watches_cells,
            "fails_to_error": small.fails_to_error,
            "charged_meanwhile": small.charged_meanwhile,
        }
        return small.network, small.images, small.volumes, small.hosts, watched


def _marks(row: Sequence[Any]) -> str:
    return ", ".join("?" * len(row))
