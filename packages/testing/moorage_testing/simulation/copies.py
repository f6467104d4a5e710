"""Volumes that are to be copied only while their server's guest is still: when each guest could write, and when each copy was made."""

import math
import sqlite3
from collections.abc import Iterable
from typing import Protocol

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.operations.steps.quiesce import STILL_FOR_S
from moorage_testing.simulation.database import SimulatedDatabaseServer

STILL_MOST_S = STILL_FOR_S + 10.0
"""Nobody who writes to a disk waits longer: a request may have been on its way for a moment."""

_LOG = """
CREATE TEMP TABLE simulated_copies (snapshot, status);
CREATE TEMP TRIGGER simulated_copies_begun AFTER INSERT ON main.volume_records WHEN new.noun = 'snapshot'
BEGIN INSERT INTO simulated_copies VALUES (new.id, new.status); END;
CREATE TEMP TRIGGER simulated_copies_changed AFTER UPDATE ON main.volume_records WHEN new.noun = 'snapshot'
BEGIN INSERT INTO simulated_copies VALUES (new.id, new.status); END;
"""


class Time(Protocol):
    """Of the simulation."""

    @property
    def now(self) -> float: ...


class CopiedWorld(Protocol):
    """The cloud, as far as this is about it."""

    stores: dict[str, SimulatedDatabaseServer]

    @property
    def loop(self) -> Time: ...

    def violated(self, what: str) -> None: ...


class Copies:
    """Called by the hosts' drivers for every change of a guest, and by the volume service's database for every change of a snapshot."""

    def __init__(self, world: CopiedWorld) -> None:
        self._world = world
        self._followed: set[str] = set()
        self._writing: dict[str, list[tuple[float, bool, float]]] = {}
        """Server → since when it could write to its disks, or could not, and when it can again whatever happens."""
        self._still: dict[tuple[str, ServerId], tuple[float, str]] = {}
        """(host, server) → since when it is still, and why."""
        self._runs: dict[str, set[str]] = {}
        """Server → the hosts where it writes."""
        self._made: dict[str, tuple[float, float]] = {}
        """Snapshot → when it was begun, and when it was there."""

    def follow(self, server: str) -> None:
        """Its boot was accepted."""
        if not self._followed:
            self._world.stores["volume"].raw.executescript(_LOG)
            self._world.stores["volume"].after_commit.append(self._committed)
        self._followed.add(server)

    # ------------------------------------------------------------------------------------------------- what happens

    def guest(self, host: str, guest: SimulatedGuest) -> None:
        """As it is from now on."""
        server, key = guest.spec.server, (host, guest.spec.server)
        if guest.power is PowerState.RUNNING and guest.frozen_for:
            if self._still.get(key, (0.0, ""))[1] != guest.frozen_for:
                self._still[key] = (self._world.loop.now, guest.frozen_for)
        else:
            self._still.pop(key, None)
        if server in self._followed:
            runs = guest.power is PowerState.RUNNING
            until = self._still[key][0] + STILL_FOR_S if key in self._still else math.inf
            self._writes(host, server, writes=runs and not guest.frozen_for, until=until)

    def gone(self, host: str, server: ServerId) -> None:
        self._still.pop((host, server), None)
        if server in self._followed:
            self._writes(host, server, writes=False)

    def _writes(self, host: str, server: str, *, writes: bool, until: float = math.inf) -> None:
        hosts = self._runs.setdefault(server, set())
        (hosts.add if writes else hosts.discard)(host)
        log = self._writing.setdefault(server, [])
        now = (bool(hosts), math.inf if hosts else until)
        if not log or log[-1][1:] != now:
            log.append((self._world.loop.now, *now))

    def _committed(self, raw: sqlite3.Connection, _: str) -> None:
        for snapshot, status in raw.execute("SELECT snapshot, status FROM temp.simulated_copies").fetchall():
            now = self._world.loop.now
            if status == "available" or snapshot not in self._made:
                self._made[snapshot] = (self._made.get(snapshot, (now, now))[0], now)
        raw.execute("DELETE FROM temp.simulated_copies")

    # ------------------------------------------------------------------------------------------------- at rest

    def past(self) -> list[tuple[str, ServerId, str]]:
        """(host, server, why) of guests that are still quiesced, although their time is over."""
        now = self._world.loop.now
        return [(*key, why) for key, (since, why) in self._still.items() if now - since > STILL_MOST_S]

    def written_meanwhile(self, server: str, snapshots: Iterable[str]) -> list[str]:
        """Of these snapshots of its volumes, those during whose making it could write."""
        spans = self._spans(server)
        return [
            f"snapshot {each} of {server} was made from {begun:.2f} to {ended:.2f}, while its guest could write: {spans}"
            for each in snapshots
            for begun, ended in [self._made.get(each, (0.0, 0.0))]
            if any(since < ended and begun < until for since, until in spans)
        ]

    def _spans(self, server: str) -> list[tuple[float, float]]:
        """When it could write."""
        log = self._writing.get(server, [])
        ends = [since for since, _, _ in log[1:]] + [math.inf]
        spans = [(since if writes else again, end) for (since, writes, again), end in zip(log, ends, strict=True)]
        return [each for each in spans if each[0] < each[1]]


__all__ = ["Copies"]
