"""What must hold at every event of servers that move to other cells: one record takes writes, and every list has each server once."""

import asyncio
import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage_testing.simulation.cloud import SimulatedCloud

LOOK_EVERY_S = (0.03, 0.5)
"""Pause between two reads of the list of servers, of a watcher in plans in which servers move to other cells."""


def watch_records(cloud: "SimulatedCloud") -> None:
    """From now on: after every commit of a cell, no server that nobody holds has two records that requests may write to."""
    for cell in cloud.config.cells:
        cloud.stores[cell.name].after_commit.append(lambda _raw, label: _one_is_open(cloud, label))


def _one_is_open(cloud: "SimulatedCloud", label: str) -> None:
    counted = Counter(server for rows in _records(cloud).values() for server, hidden in rows.items() if not hidden)
    if twice := [server for server, count in counted.items() if count > 1]:
        held = _held(cloud.stores["region"].raw)
        restored = cloud.restores.touched if cloud.restores is not None else set()
        for server in sorted(set(twice) - held - restored):
            cloud.violated(f"{server}, which nobody holds, has two records that may be written to ({label})")


def _records(cloud: "SimulatedCloud") -> dict[str, dict[str, bool]]:
    """Cell → server → whether its record there is sealed; of servers that are not deleted."""
    read = "SELECT id, hidden FROM servers WHERE deleted_at IS NULL"
    return {
        each.name: {server: bool(hidden) for server, hidden in cloud.stores[each.name].raw.execute(read)}
        for each in cloud.config.cells
    }


def _held(region: sqlite3.Connection) -> set[str]:
    return {row[0] for row in region.execute("SELECT id FROM servers WHERE operation IS NOT NULL")}


async def watch_lists(cloud: "SimulatedCloud") -> None:
    """Every server that was there, and that nobody deletes, is in every list once, whatever moves meanwhile."""
    watch, dice = cloud.watch, cloud.dice(str(cloud.loop.now), "lists")
    seen: set[str] = set()
    while True:
        await asyncio.sleep(dice.uniform(*LOOK_EVERY_S))
        if not _held(cloud.stores["region"].raw):
            continue  # nothing moves
        wanted = {each.id for each in watch.book.servers.values() if each.id and not each.delete_asked} & seen
        if cloud.restores.begun:
            seen.clear()
            continue
        reply = await watch.admin.ask("compute", "GET", "/servers/detail", all_tenants="1", limit="1000")
        if reply.status != 200 or cloud.restores.begun:
            continue
        listed = Counter(each["id"] for each in reply.body["servers"])
        lost = {each for each in wanted if not listed[each]} - {
            each.id for each in watch.book.servers.values() if each.delete_asked
        }
        for server in sorted(lost):
            cloud.violated(f"{server} is in no list for a moment")
        for server, count in listed.items():
            if count > 1:
                cloud.violated(f"{server} is in a list {count} times")
        seen |= listed.keys()


__all__ = ["watch_lists", "watch_records"]
