"""Moves of every kind in rounds of faults: what is ordered, and what must have become of what was acknowledged.

An acknowledged move has an operation, and that has ended: done, and the server is as such a move leaves it; or undone, with a reason that
is shown.  Audits are asked for in the middle, and find nothing.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import httpx
import msgspec
import sqlalchemy as sa

from moorage.main.config import Config
from moorage.main.local_cluster.cluster import TrialSet
from moorage.model.migration import Migration, MigrationStatus
from moorage.model.operation import OperationStatus
from moorage.sql import Tx, open_database
from moorage.store.cell.migrations import migrations
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import Census
from moorage_testing.leak_audit_moves import VERIFY, left_of, wrong_records
from moorage_testing.process_faults import ProcessFault

FLAVORS = ("m1.nano", "m1.micro", "m1.tiny")
DIALS = b'{"live_mib_per_s": 500.0, "verbs": {"*": {"delay_s": 0.05, "jitter_s": 0.4}}}'
"""A guest of m1.nano is sent with its disk in two seconds, and every other verb takes its time: so there is a middle."""
ASK_AGAIN_S = 0.3
TRIES_MAX = 5
PATIENCE_S = 150.0
OK, ACCEPTED, NO_CONTENT, NOT_FOUND = 200, 202, 204, 404
ENDED_STATUSES = {OperationStatus.DONE.value, OperationStatus.UNDONE.value}
RESTING = frozenset({"ACTIVE", "SHUTOFF", "VERIFY_RESIZE", "SHELVED", "SHELVED_OFFLOADED", "ERROR"})
LEAVES: Mapping[str, Collection[str]] = {
    "resize": ("VERIFY_RESIZE",),
    "migrate": ("VERIFY_RESIZE",),
    "os-migrateLive": ("ACTIVE",),
    "confirmResize": ("ACTIVE", "SHUTOFF"),
    "revertResize": ("ACTIVE", "SHUTOFF"),
    "shelve": ("SHELVED", "SHELVED_OFFLOADED"),
    "unshelve": ("ACTIVE",),
    "evacuate": ("SHUTOFF", "ACTIVE"),
}
"""Status of a server after a move of this kind, which was done."""
ELSEWHERE = frozenset({"migrate", "resize", "os-migrateLive", "evacuate"})
"""The server is on another host than before."""
STOPPED = ("resize", "migrate", "shelve")
OF_STATUS: Mapping[str, tuple[str, ...]] = {
    "ACTIVE": (
        "resize",
        "resize",
        "migrate",
        "migrate",
        "os-migrateLive",
        "os-migrateLive",
        "os-migrateLive",
        "shelve",
    ),
    "SHUTOFF": STOPPED,
    "VERIFY_RESIZE": ("confirmResize", "revertResize"),
    "SHELVED": ("unshelve",),
    "SHELVED_OFFLOADED": ("unshelve",),
}
Answer = TypeVar("Answer")
_migration = msgspec.json.Decoder(Migration).decode


@dataclass(frozen=True)
class AcknowledgedMove:
    """One that was acknowledged."""

    kind: str
    server: str
    request: str
    host: str | None
    """Where the server was."""


@dataclass
class MoveOutcomes:
    """What became of moves, of all rounds."""

    done: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    audits: int = 0
    whole: int = 0
    """Audits that could read everything."""
    alarms: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        kinds = sorted({*self.done, *self.undone})
        summary = ", ".join(f"{each} {self.done[each]} done and {self.undone[each]} taken back" for each in kinds)
        return [
            f"moves: {summary}",
            *(f"  {count} × {reason}" for reason, count in self.reasons.most_common(12)),
            f"{self.audits} audits, {self.whole} of everything, found {len(self.alarms)} things",
        ]


class RoundMoves:
    """Orders of one round, and what all rounds counted."""

    def __init__(self, trial: TrialSet, dice: random.Random, totals: MoveOutcomes) -> None:
        self.totals = totals
        self._trial, self._dice = trial, dice
        self._flavors: dict[str, str] = {}
        self._asked: list[AcknowledgedMove] = []
        self._unsure: set[str] = set()
        """Servers of which something was asked that got no answer."""
        self._seen: Census | None = None

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def waiting(self) -> list[str]:
        """Servers whose move is to be confirmed or reverted, when they were last seen."""
        return [] if self._seen is None else [each.id for each in self._seen.servers.values() if each.status == VERIFY]

    async def begin(self, admin: Person) -> None:
        """A round: hosts take their time from now on."""
        self._asked, self._unsure = [], set()
        self._flavors = {each: await admin.id_of("flavor", each) for each in FLAVORS}
        for directory in (self._trial.config.data / "hosts").glob("host*"):
            await asyncio.to_thread((directory / "dials.json").write_bytes, DIALS)

    # ------------------------------------------------------------------------------------------------- orders

    async def order(self, admin: Person, server: str) -> int:
        """A move that fits what the server is; how many requests got no answer."""
        try:
            seen = await reached(lambda: admin.server(server))
            if seen is None or seen["status"] not in OF_STATUS:
                return 0
            kind = self._dice.choice(OF_STATUS[seen["status"]])
            body = {kind: self._body(kind, seen)}
            reply = await reached(lambda: admin.compute("POST", f"/servers/{server}/action", body))
        except httpx.HTTPError:
            self._unsure.add(server)
            return 1
        self._note(kind, seen, reply)
        return 0

    def _body(self, kind: str, seen: Mapping[str, Any]) -> Any:
        match kind:
            case "resize":
                others = [id for name, id in self._flavors.items() if name != seen["flavor"]["original_name"]]
                return {"flavorRef": self._dice.choice(others)}
            case "os-migrateLive":
                return {"host": None, "block_migration": "auto"}
            case _:
                return None

    def _note(self, kind: str, seen: Mapping[str, Any], reply: httpx.Response) -> None:
        if reply.status_code in {OK, ACCEPTED, NO_CONTENT}:
            request = reply.headers["x-openstack-request-id"]
            self._asked.append(AcknowledgedMove(kind, seen["id"], request, seen["OS-EXT-SRV-ATTR:host"]))

    async def evacuate(self, admin: Person, fault: ProcessFault) -> int:
        """Its agent is killed: the host is reported as off, and its servers are evacuated; how many requests got no answer."""
        host, unheard = fault.target.partition("-")[2], 0
        await self._forced(admin, host, down=True)
        reply = await self._answered(lambda: admin.compute("GET", "/servers/detail", all_tenants="1", host=host))
        for seen in reply.json().get("servers", ()):
            path = f"/servers/{seen['id']}/action"
            try:
                reply = await reached(partial(admin.compute, "POST", path, {"evacuate": {}}))
            except httpx.HTTPError:
                self._unsure.add(seen["id"])
                unheard += 1
            else:
                self._note("evacuate", seen, reply)
        return unheard

    async def returned(self, admin: Person, fault: ProcessFault) -> None:
        """The host of an evacuation is well again."""
        await self._forced(admin, fault.target.partition("-")[2], down=False)

    async def _forced(self, admin: Person, host: str, *, down: bool) -> None:
        """An operator asks until somebody answers."""
        reply = await self._answered(lambda: admin.compute("GET", "/os-services", host=host, binary="nova-compute"))
        service = reply.json()["services"][0]["id"]
        await self._answered(lambda: admin.compute("PUT", f"/os-services/{service}", {"forced_down": down}))

    async def _answered(self, ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                reply = await ask()
            except httpx.HTTPError:
                if time.monotonic() > deadline:
                    raise
            else:
                if reply.status_code == OK:
                    return reply
                if time.monotonic() > deadline:
                    raise RuntimeError(reply.text)
            await asyncio.sleep(ASK_AGAIN_S)

    # ------------------------------------------------------------------------------------------------- what is kept

    async def completed(self, seen: Census, *, ended: bool) -> tuple[Census, list[str]]:
        """The census with what moved servers have on the hosts that they left, and records of moves that are wrong.

        An evacuation that is done ends with the next whole report of the host that is back, a minute later at most: only at the
        end, `ended`, that is waited for.
        """
        moves = await _open_moves(self._trial.config)
        if not ended:
            done = {each.uuid for each in moves if each.status is MigrationStatus.DONE}
            claims = {consumer: held for consumer, held in seen.claims.items() if consumer not in done}
            seen, moves = (
                msgspec.structs.replace(seen, claims=claims),
                [each for each in moves if each.uuid not in done],
            )
        statuses = {each.id: each.status for each in seen.servers.values()}
        left = left_of(moves, statuses)
        hosts = {each.id: each.host for each in seen.servers.values()}
        self._seen = msgspec.structs.replace(seen, left=left)
        return self._seen, wrong_records(moves, hosts, statuses, left)

    async def broken(self, admin: Person, deleted: Collection[str], *, count: bool = False) -> list[str]:
        """Acknowledged moves that were lost, or did what they should not; `count`: this was the last look of the round."""
        wrong: list[str] = []
        asked = Counter([*(each.server for each in self._asked), *self._unsure, *deleted])
        for each in self._asked:
            reply = await admin.compute("GET", "/ext/operations", server=each.server, all_projects="1")
            found = [row for row in reply.json()["operations"] if row["request_id"] == each.request]
            label = f"{each.kind} of {each.server} ({each.request})"
            if not found:
                wrong.append(f"{label}: no operation")
            elif found[0]["status"] not in ENDED_STATUSES:
                wrong.append(f"{label}: {found[0]['status']} {found[0]['waiting'] or ''}")
            elif found[0]["status"] == OperationStatus.UNDONE.value:
                if not found[0]["fault"] and not found[0]["cancel"]:
                    wrong.append(f"{label}: taken back without a reason")
                if count:
                    self.totals.undone[each.kind] += 1
                    self.totals.reasons[f"{each.kind}: {found[0]['fault'] or 'deleted meanwhile'}"] += 1
            else:
                if asked[each.server] == 1:
                    wrong += self._not_as_moved(each, label)
                if count:
                    self.totals.done[each.kind] += 1
        assert self._seen is not None
        wrong += [
            f"{each.id} rests as {each.status}" for each in self._seen.servers.values() if each.status not in RESTING
        ]
        return wrong

    def _not_as_moved(self, move: AcknowledgedMove, label: str) -> list[str]:
        assert self._seen is not None
        now = self._seen.servers.get(move.server)
        if now is None:
            return [f"{label}: done, and it is gone"]
        wrong = []
        if now.status not in LEAVES[move.kind]:
            wrong.append(f"{label}: done, and it is {now.status}")
        if move.kind in ELSEWHERE and now.host == move.host:
            wrong.append(f"{label}: done, and it is still on {now.host}")
        return wrong

    # ------------------------------------------------------------------------------------------------- audits

    async def ask_audit(self, admin: Person) -> str | None:
        """In the middle of it all: its id, if the request was answered."""
        try:
            reply = await admin.compute("POST", "/ext/audits", {"audit": {}})
        except httpx.HTTPError:
            return None
        return str(reply.json()["audit"]["id"]) if reply.status_code == ACCEPTED else None

    async def audited(self, admin: Person, id: str | None, patience_s: float = PATIENCE_S) -> None:
        """What that audit found, when it ends: with another conductor, if its own was killed."""
        deadline = time.monotonic() + patience_s
        while id is not None:
            audit = (await admin.compute("GET", f"/ext/audits/{id}")).json()["audit"]
            if audit["ended_at"] is not None:
                self.totals.audits += 1
                self.totals.whole += not audit["not_looked_at"] and not audit["why"]
                self.totals.alarms += [f"audit {id}: {each}" for each in audit["findings"]]
                return
            if time.monotonic() > deadline:
                self.totals.alarms.append(f"audit {id} does not end")
                return
            await asyncio.sleep(ASK_AGAIN_S)


async def reached(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """As behind a balancer: who is not listening is passed over, and the next address is tried."""
    for _ in range(TRIES_MAX):
        try:
            return await ask()
        except httpx.ConnectError:
            await asyncio.sleep(ASK_AGAIN_S)
    return await ask()


async def _open_moves(config: Config) -> list[Migration]:
    """Of all cells."""

    def work(tx: Tx) -> list[Migration]:
        return [_migration(row.doc) for row in tx.rows(sa.select(migrations.c.doc).where(migrations.c.is_open))]

    found: list[Migration] = []
    for cell in config.cells:
        database = await open_database(config.cell_url(cell), name="census", durability=config.region.durability)
        try:
            found += await database.read(work)
        finally:
            await database.close()
    return found
