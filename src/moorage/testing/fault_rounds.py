"""Rounds of real faults on a trial set under load: `python -m moorage.testing.fault_rounds --rounds 100 --seed 1`.

Each round orders boots, deletes, stops, attaches and detaches over two API processes, and meanwhile kills (`kill -9`) or freezes
(SIGSTOP) processes of drawn roles: APIs, conductors, agents, PostgreSQL, NATS.  Then everything is healed, and the round counts:

    lost      an order that was acknowledged and is not kept
    leaked    a guest, port, claim or quota that belongs to no server (`census`)
    failed    a boot that ended in ERROR with a reason; allowed, and shown

and how long after the last fault's end everything acknowledged was kept.  The seed draws orders and faults; processes run in real
time, so the same seed gives the same plan, not the same interleaving (the simulation does that).
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from moorage.testing.census import census, leaks
from moorage.testing.person import Person
from moorage.testing.set import TrialSet

SETTINGS = """
[quota]
instances = -1
cores = -1
ram = -1

[compute]
lease_s = 6.0
lease_beat_s = 1.0
"""
HOSTS = 4
BOOTS_PER_ROUND = (4, 12)
KEPT_AT_MOST = 24
"""Servers that stay from round to round; what is more is deleted in the next one."""
FAULTS_PER_ROUND = (1, 4)
FAULT_WITHIN_S = 2.0
"""Faults begin within this time; orders come until some seconds later, so that they meet the outage and its end."""
DOWN_S = (0.0, 3.0)
FROZEN_S = (1.0, 12.0)
ROUND_PATIENCE_S = 150.0
LOOK_EVERY_S = 0.1
START_AGAIN_S = 0.5
FOUND, ACCEPTED, DELETED = 200, 202, 204
NETWORKS = ("private", "private", "routed", "none")


@dataclass(frozen=True)
class Fault:
    """One fault of a round: `kind` on `target` after `after_s`, ended after `for_s`."""

    kind: str
    target: str
    after_s: float
    for_s: float


OUTAGES = (
    Fault("kill", "api-1", 1.0, 2.0),
    Fault("kill", "conductor-1", 1.0, 2.0),
    Fault("freeze", "conductor-1", 1.0, 20.0),
    Fault("kill", "agent-host1", 1.0, 2.0),
    Fault("freeze", "agent-host1", 1.0, 60.0),
    Fault("kill", "postgres", 1.0, 0.0),
    Fault("freeze", "postgres", 1.0, 45.0),
    Fault("kill", "nats", 1.0, 45.0),
    Fault("freeze", "nats", 1.0, 45.0),
)
"""What `--outages` measures, one after the other."""


@dataclass
class Orders:
    """What was acknowledged, and must therefore be kept."""

    boots: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    stops: set[str] = field(default_factory=set)
    attaches: dict[str, str] = field(default_factory=dict)
    """Port → server."""
    unheard: int = 0
    """Requests without an answer: they may count or not."""

    def __len__(self) -> int:
        return len(self.boots) + len(self.deletes) + len(self.stops) + len(self.attaches)


@dataclass
class Totals:
    """Of all rounds."""

    rounds: int = 0
    acknowledged: int = 0
    unheard: int = 0
    failed: int = 0
    lost: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    recovery_s: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """For people."""
        took = sorted(self.recovery_s) or [0.0]
        drawn = ", ".join(f"{count} × {name}" for name, count in sorted(self.faults.items()))
        return [
            f"{self.rounds} rounds, {sum(self.faults.values())} faults: {drawn}",
            f"{self.acknowledged} acknowledged orders, {self.unheard} requests without an answer",
            f"{len(self.lost)} lost, {len(self.leaked)} leaked, {self.failed} boots ended in ERROR with a reason",
            *(f"  {count} × {reason}" for reason, count in self.reasons.most_common(8)),
            f"everything kept after the last fault's end: median {statistics.median(took):.1f} s, longest {took[-1]:.1f} s",
        ]


class Rounds:
    """Draws rounds from one seed and plays them on one set."""

    def __init__(self, trial: TrialSet, seed: int) -> None:
        self.trial = trial
        self.totals = Totals()
        self._dice = random.Random(seed)
        self._standing: list[str] = []
        """Servers that stayed from earlier rounds."""

    async def play(self, faults: Sequence[Fault] | None = None) -> Totals:
        """One round, with these faults or drawn ones; the totals so far.  Adds to `lost` and `leaked` instead of raising."""
        dice, orders = self._dice, Orders()
        faults = self.draw() if faults is None else faults
        async with Person(self.trial.config, urls=self.trial.api_urls()) as admin:
            work: list[Awaitable[None]] = [
                self._boot(admin, orders, number) for number in range(dice.randint(*BOOTS_PER_ROUND))
            ]
            work += self._on_standing(admin, orders)
            dice.shuffle(work)
            await asyncio.gather(*(self._inject(fault) for fault in faults), *(self._paced(each) for each in work))
            healed = time.monotonic()
            kept = await self._kept(admin, orders)
        totals = self.totals
        totals.rounds += 1
        totals.acknowledged += len(orders)
        totals.unheard += orders.unheard
        totals.faults.update(f"{fault.kind} {role(fault.target)}" for fault in faults)
        if kept:
            totals.recovery_s.append(time.monotonic() - healed)
        return totals

    # ------------------------------------------------------------------------------------------------- faults

    def draw(self) -> list[Fault]:
        """The faults of the next round: no target twice."""
        dice = self._dice
        targets = [*sorted(self.trial.processes), "postgres", "nats"]
        targets.remove("embedded")  # the stand-ins of other projects' services are not what is tried
        chosen = dice.sample(targets, dice.randint(*FAULTS_PER_ROUND))
        faults = []
        for target in chosen:
            kind = dice.choice(("kill", "kill", "freeze"))
            lasts = dice.uniform(*(FROZEN_S if kind == "freeze" else DOWN_S))
            faults.append(Fault(kind, target, dice.uniform(0.0, FAULT_WITHIN_S), lasts))
        return faults

    async def _inject(self, fault: Fault) -> None:
        await asyncio.sleep(fault.after_s)
        begin, end = self._ways(fault)
        await asyncio.to_thread(begin)
        await asyncio.sleep(fault.for_s)
        await asyncio.to_thread(end)

    def _ways(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
        """How this fault begins and ends."""
        trial, target = self.trial, fault.target
        assert trial.postgres is not None
        assert trial.nats is not None
        if fault.kind == "freeze":
            pids = self._pids(target)
            return (lambda: send(pids, signal.SIGSTOP)), (lambda: send(pids, signal.SIGCONT))
        match target:
            case "postgres":
                return (lambda: None), trial.postgres.restart
            case "nats":
                return trial.nats.stop, trial.nats.start
            case _:
                return (lambda: trial.kill(target)), (lambda: self._start_again(target))

    def _start_again(self, target: str) -> None:
        """As a supervisor does: a process that finds its database out ends with a sentence, and is started once more."""
        deadline, words = time.monotonic() + ROUND_PATIENCE_S, self.trial.words_of(target)
        while True:
            try:
                self.trial.run(target, *words)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(START_AGAIN_S)
            else:
                return

    def _pids(self, target: str) -> list[int]:
        trial = self.trial
        assert trial.postgres is not None
        assert trial.nats is not None
        if target == "postgres":
            return [trial.postgres.process_id, *children(trial.postgres.process_id)]
        return [trial.nats.process_id if target == "nats" else trial.processes[target].pid]

    # ------------------------------------------------------------------------------------------------- orders

    def _on_standing(self, admin: Person, orders: Orders) -> list[Awaitable[None]]:
        """What is ordered of servers that stayed: one order for each at most."""
        dice, work = self._dice, list[Awaitable[None]]()
        dice.shuffle(self._standing)
        going = max(len(self._standing) - KEPT_AT_MOST, 0) + dice.randint(0, 4)
        for server in self._standing[:going]:
            work.append(self._delete(admin, orders, server))
        for server in self._standing[going : going + 3]:
            work.append(self._stop_and_start(admin, orders, server))
        for server in self._standing[going + 3 : going + 6]:
            work.append(self._attach(admin, orders, server))
        return work

    async def _paced(self, work: Awaitable[None]) -> None:
        await asyncio.sleep(self._dice.uniform(0.0, FAULT_WITHIN_S + DOWN_S[1]))
        await work

    async def _boot(self, admin: Person, orders: Orders, number: int) -> None:
        name = f"round-{self.totals.rounds}-{number}"
        reply = await self._ask(orders, lambda: admin.ask_boot(name, networks=self._dice.choice(NETWORKS)))
        if reply is not None and reply.status_code == ACCEPTED:
            orders.boots.add(str(reply.json()["server"]["id"]))

    async def _delete(self, admin: Person, orders: Orders, server: str) -> None:
        reply = await self._ask(orders, lambda: admin.compute("DELETE", f"/servers/{server}"))
        if reply is not None and reply.status_code == DELETED:
            orders.deletes.add(server)

    async def _stop_and_start(self, admin: Person, orders: Orders, server: str) -> None:
        found = await self._ask(orders, lambda: admin.compute("GET", f"/servers/{server}"))
        if found is None or found.status_code != FOUND:
            return
        running = found.json()["server"]["status"] == "ACTIVE"
        word = "os-stop" if running else "os-start"
        reply = await self._ask(orders, lambda: admin.compute("POST", f"/servers/{server}/action", {word: None}))
        if reply is not None and reply.status_code == ACCEPTED:
            (orders.stops.add if running else orders.boots.add)(server)

    async def _attach(self, admin: Person, orders: Orders, server: str) -> None:
        try:
            network = await admin.id_of("network", "private")
        except httpx.HTTPError:
            return
        body = {"interfaceAttachment": {"net_id": network}}
        reply = await self._ask(orders, lambda: admin.compute("POST", f"/servers/{server}/os-interface", body))
        if reply is not None and reply.status_code == FOUND:
            orders.attaches[reply.json()["interfaceAttachment"]["port_id"]] = server

    async def _ask(self, orders: Orders, ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response | None:
        try:
            return await ask()
        except httpx.HTTPError:
            orders.unheard += 1
            return None

    # ------------------------------------------------------------------------------------------------- what is kept

    async def _kept(self, admin: Person, orders: Orders) -> bool:
        """Wait until all that was acknowledged is so and nothing is left over; say what is not."""
        deadline = time.monotonic() + ROUND_PATIENCE_S
        while True:
            try:
                seen = await census(self.trial.config, admin)
                broken = await self._broken(admin, orders, {each.id: each.status for each in seen.servers.values()})
                left = leaks(seen)
            except httpx.HTTPError as failure:
                seen, broken, left = None, [f"the cloud cannot be asked: {failure!r}"], []
            if seen is not None and not broken and not left:
                failed = {each.id for each in seen.servers.values() if each.status == "ERROR"}
                await self._reasons(admin, failed)
                self._standing = [each for each in seen.servers if each not in failed]
                return True
            if time.monotonic() > deadline:
                self.totals.lost += broken
                self.totals.leaked += left
                return False
            await asyncio.sleep(LOOK_EVERY_S)

    async def _broken(self, admin: Person, orders: Orders, statuses: dict[str, str]) -> list[str]:
        wrong = [f"boot of {each}: absent" for each in orders.boots - statuses.keys() - orders.deletes]
        wrong += [f"boot of {each}: {statuses[each]}" for each in orders.boots if statuses.get(each) == "BUILD"]
        wrong += [f"delete of {each}: {statuses[each]}" for each in orders.deletes if each in statuses]
        wrong += [f"stop of {each}: {statuses.get(each)}" for each in orders.stops if statuses.get(each) != "SHUTOFF"]
        for port, server in orders.attaches.items():
            reply = await admin.compute("GET", f"/servers/{server}/os-interface/{port}")
            if reply.status_code != FOUND:
                wrong.append(f"attach of {port} to {server}: {reply.status_code}")
        return wrong

    async def _reasons(self, admin: Person, failed: set[str]) -> None:
        """Why servers ended in ERROR; then they are deleted, so that the next round begins without them."""
        for each in failed:
            shown = await admin.server(each)
            if shown is not None:
                self.totals.failed += 1
                self.totals.reasons[str(shown.get("fault", {}).get("message"))] += 1
                await admin.gone(each)


def role(target: str) -> str:
    """`conductor-1` → `conductor`."""
    return target.partition("-")[0]


def send(pids: Sequence[int], sign: signal.Signals) -> None:
    """A process that has ended meanwhile needs no signal."""
    for pid in pids:
        try:
            os.kill(pid, sign)
        except ProcessLookupError:
            continue


def children(pid: int) -> list[int]:
    """The processes that this one started, from /proc."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in listed]


async def play(rounds: int, seed: int, directory: Path, say: Callable[[str], object] = print) -> Totals:
    """Start a set, play the rounds, stop it.  Ends early when an order was lost or something leaked, and leaves the logs."""
    trial = TrialSet(directory, hosts=HOSTS, settings=SETTINGS)
    try:
        await asyncio.to_thread(trial.start)
        player = Rounds(trial, seed)
        for number in range(rounds):
            totals = await player.play()
            say(f"round {number + 1}: {totals.acknowledged} orders, {sum(totals.faults.values())} faults")
            if totals.lost or totals.leaked:
                break
        return player.totals
    finally:
        await asyncio.to_thread(trial.stop)


async def outages(seed: int, directory: Path, say: Callable[[str], object] = print) -> Totals:
    """One round for each kind of outage, and how long after its end everything acknowledged was kept."""
    trial = TrialSet(directory, hosts=HOSTS, settings=SETTINGS)
    try:
        await asyncio.to_thread(trial.start)
        player = Rounds(trial, seed)
        for fault in OUTAGES:
            before = len(player.totals.recovery_s)
            totals = await player.play([fault])
            took = totals.recovery_s[before:]
            ended = f"{took[0]:5.1f} s" if took else "never"
            say(
                f"{fault.kind:6} {role(fault.target):10} for {fault.for_s:4.0f} s: everything kept {ended} after its end"
            )
        return player.totals
    finally:
        await asyncio.to_thread(trial.stop)


def main(argv: Sequence[str]) -> int:
    """1 when anything was lost or leaked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="logs of every process (default: a new one, said at the end)")
    parser.add_argument(
        "--outages", action="store_true", help="instead: one round for each kind of outage, with its time"
    )
    arguments = parser.parse_args(argv)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="moorage-faults-"))
    work = (
        outages(arguments.seed, directory) if arguments.outages else play(arguments.rounds, arguments.seed, directory)
    )
    totals = asyncio.run(work)
    for line in (*totals.lines(), *totals.lost, *totals.leaked, f"logs: {directory}"):
        sys.stdout.write(line + "\n")
    return 1 if totals.lost or totals.leaked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
