"""Rounds of real faults on a trial set under load: `python -m moorage_testing.fault_rounds --rounds 100 --seed 1`.

Each round orders boots, deletes, stops, attaches and detaches over two API processes, and meanwhile kills (`kill -9`) or freezes
(SIGSTOP) processes of drawn roles: APIs, conductors, agents, PostgreSQL, NATS.  Then everything is healed, and the round counts:

    lost      an order that was acknowledged and is not kept
    leaked    a guest, port, claim or quota that belongs to no server (`census`)
    stuck     an operation or a move that does not end
    failed    a boot that ended in ERROR with a reason; allowed, and shown

and how long after the last fault's end everything acknowledged was kept.  The seed draws orders and faults; processes run in real
time, so the same seed gives the same plan, not the same interleaving (the simulation does that).

`--moves 12` moves so many servers in each round, in every way (`fault_moves`), evacuates hosts, and lets an audit look in the middle;
`--kills` draws kills of APIs, conductors and agents alone.
"""

import argparse
import asyncio
import math
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx

from moorage.main.local_cluster.cluster import TrialSet
from moorage_testing.api_user import Person
from moorage_testing.fault_counts import Orders, RoundLoad, Totals
from moorage_testing.fault_moves import RoundMoves
from moorage_testing.leak_audit import census, leaks
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.process_faults import OUTAGES, ProcessFault, role, ways

SETTINGS = f"""
{CHEAP_LOGINS_SETTINGS}[quota]
instances = -1
cores = -1
ram = -1

[compute]
lease_s = 6.0
lease_beat_s = 1.0
"""
BOOTS_PER_ROUND = (4, 12)
FAULTS_PER_ROUND = (1, 4)
FAULT_WITHIN_S = 2.0
"""Faults begin within this time; orders come until some seconds later, so that they meet the outage and its end."""
DOWN_S = (0.0, 3.0)
FROZEN_S = (1.0, 12.0)
ROUND_PATIENCE_S = 150.0
LOOK_EVERY_S = 0.1
LOOK_LESS = 5
"""With moves, which take seconds, the looking shall not be most of the work."""
FOUND, ACCEPTED, DELETED = 200, 202, 204
NETWORKS = ("private", "private", "routed", "none")
UNFINISHED = "unfinished: "
"""How the census begins what it says of operations that are not ended."""


class Rounds:
    """Draws rounds from one seed and plays them on one set."""

    def __init__(self, trial: TrialSet, seed: int, load: RoundLoad | None = None) -> None:
        self.trial, self.load = trial, load or RoundLoad()
        self.totals = Totals()
        self._dice = random.Random(seed)
        self.moves = RoundMoves(trial, self._dice, self.totals.moves)
        self._ended = False
        self._standing: list[str] = []
        """Servers that stayed from earlier rounds."""

    async def play(self, faults: Sequence[ProcessFault] | None = None) -> Totals:
        """One round, with these faults or drawn ones; the totals so far.  Adds to `lost` and `leaked` instead of raising."""
        dice, orders = self._dice, Orders()
        faults = self.draw() if faults is None else faults
        async with Person(self.trial.config, urls=self.trial.api_urls()) as admin:
            work: list[Awaitable[None]] = [
                self._boot(admin, orders, number) for number in range(dice.randint(*BOOTS_PER_ROUND))
            ]
            if self.load.moves:
                await self.moves.begin(admin)
                work.append(self._audit(admin, orders))
            work += self._on_standing(admin, orders)
            dice.shuffle(work)
            injected = (self._inject(admin, orders, fault) for fault in faults)
            await asyncio.gather(*injected, *(self._paced(each) for each in work))
            healed = time.monotonic()
            kept = await self._wait_until_consistent(admin, orders)
            took_s = time.monotonic() - healed
            if self.load.moves and kept:
                await self.moves.broken(admin, orders.deletes_asked, count=True)
                await self.moves.audited(admin, orders.audit)
        totals = self.totals
        totals.rounds += 1
        totals.acknowledged += len(orders) + len(self.moves)
        totals.unheard += orders.unheard
        totals.faults.update(f"{fault.kind} {role(fault.target)}" for fault in faults)
        if kept:
            totals.recovery_s.append(took_s)
        return totals

    async def fill(self) -> None:
        """As many servers as stay, before anything is broken."""
        async with Person(self.trial.config, urls=self.trial.api_urls()) as admin:
            orders = Orders()
            await asyncio.gather(*(self._boot(admin, orders, number) for number in range(self.load.standing)))
            await self._wait_until_consistent(admin, orders)

    async def end(self) -> None:
        """Moves that wait are confirmed or reverted; then an audit of everything finds nothing."""
        async with Person(self.trial.config, urls=self.trial.api_urls()) as admin:
            orders, self._ended = Orders(), True
            await self.moves.begin(admin)
            await asyncio.gather(*(self._move(admin, orders, each) for each in self.moves.waiting))
            if await self._wait_until_consistent(admin, orders):
                await self.moves.broken(admin, orders.deletes_asked, count=True)
                audit = await self.moves.ask_audit(admin)
                await self.moves.audited(admin, audit)
            self.totals.acknowledged += len(self.moves)

    # ------------------------------------------------------------------------------------------------- faults

    def draw(self) -> list[ProcessFault]:
        """The faults of the next round: no target twice."""
        dice = self._dice
        if self.load.kills_only:
            return self._kills()
        targets = [*sorted(self.trial.processes), "postgres", "nats"]
        targets.remove("embedded")  # the stand-ins of other projects' services are not what is tried
        chosen = dice.sample(targets, dice.randint(*FAULTS_PER_ROUND))
        faults = []
        for target in chosen:
            kind = dice.choice(("kill", "kill", "freeze"))
            lasts = dice.uniform(*(FROZEN_S if kind == "freeze" else DOWN_S))
            faults.append(ProcessFault(kind, target, dice.uniform(0.0, FAULT_WITHIN_S), lasts))
        return faults

    def _kills(self) -> list[ProcessFault]:
        """Roles are drawn first, for there are more agents than others."""
        dice, chosen = self._dice, set[str]()
        for _ in range(dice.randint(*FAULTS_PER_ROUND)):
            wanted = dice.choice(("api", "conductor", "agent"))
            chosen.add(dice.choice([each for each in sorted(self.trial.processes) if role(each) == wanted]))
        return [
            ProcessFault(
                dice.choice(("kill", "evacuate")) if self.load.moves and role(each) == "agent" else "kill",
                each,
                dice.uniform(0.0, FAULT_WITHIN_S + DOWN_S[1]),
                dice.uniform(*DOWN_S),
            )
            for each in sorted(chosen)
        ]

    async def _inject(self, admin: Person, orders: Orders, fault: ProcessFault) -> None:
        await asyncio.sleep(fault.after_s)
        begin, end = ways(self.trial, fault)
        await asyncio.to_thread(begin)
        if fault.kind == "evacuate":
            orders.unheard += await self.moves.evacuate(admin, fault)
        await asyncio.sleep(fault.for_s)
        await asyncio.to_thread(end)
        if fault.kind == "evacuate":
            await self.moves.returned(admin, fault)

    # ------------------------------------------------------------------------------------------------- orders

    def _on_standing(self, admin: Person, orders: Orders) -> list[Awaitable[None]]:
        """What is ordered of servers that stayed: one order for each at most."""
        dice, work = self._dice, list[Awaitable[None]]()
        dice.shuffle(self._standing)
        going = max(len(self._standing) - self.load.standing, 0) + dice.randint(0, 4)
        for server in self._standing[:going]:
            work.append(self._delete(admin, orders, server))
        for server in self._standing[going : going + 3]:
            work.append(self._stop_and_start(admin, orders, server))
        for server in self._standing[going + 3 : going + 6]:
            work.append(self._attach(admin, orders, server))
        for server in self._standing[going + 6 : going + 6 + self.load.moves]:
            work.append(self._move(admin, orders, server))
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
        orders.deletes_asked.add(server)
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

    async def _move(self, admin: Person, orders: Orders, server: str) -> None:
        orders.unheard += await self.moves.order(admin, server)

    async def _audit(self, admin: Person, orders: Orders) -> None:
        orders.audit = await self.moves.ask_audit(admin)

    async def _ask(self, orders: Orders, ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response | None:
        try:
            return await ask()
        except httpx.HTTPError:
            orders.unheard += 1
            return None

    # ------------------------------------------------------------------------------------------------- what is kept

    async def _wait_until_consistent(self, admin: Person, orders: Orders) -> bool:
        """Wait until all that was acknowledged is so and nothing is left over; say what is not."""
        deadline = time.monotonic() + ROUND_PATIENCE_S
        while True:
            try:
                seen = await census(self.trial.config, admin)
                broken = await self._broken(admin, orders, {each.id: each.status for each in seen.servers.values()})
                left: list[str] = []
                if self.load.moves:
                    seen, left = await self.moves.completed(seen, ended=self._ended)
                left += leaks(seen)
                if self.load.moves and not broken and not left:  # many requests: when all else is as it should be
                    broken = await self.moves.broken(admin, orders.deletes_asked)
            except httpx.HTTPError as failure:
                seen, broken, left = None, [f"the cloud cannot be asked: {failure!r}"], []
            if seen is not None and not broken and not left:
                failed = {each.id for each in seen.servers.values() if each.status == "ERROR"}
                await self._reasons(admin, failed)
                self._standing = [each for each in seen.servers if each not in failed]
                return True
            if time.monotonic() > deadline:
                self.totals.lost += broken
                self.totals.leaked += [each for each in left if not each.startswith(UNFINISHED)]
                self.totals.stuck += [each for each in left if each.startswith(UNFINISHED)]
                return False
            await asyncio.sleep(LOOK_EVERY_S * (LOOK_LESS if self.load.moves else 1))

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


async def play(
    rounds: int, seed: int, directory: Path, load: RoundLoad | None = None, say: Callable[[str], object] = print
) -> Totals:
    """Start a set, play the rounds, stop it.  Ends early when anything was lost, leaked or stuck, and leaves the logs."""
    load = load or RoundLoad()
    trial = TrialSet(directory, hosts=load.hosts, settings=SETTINGS)
    try:
        await asyncio.to_thread(trial.start)
        player = Rounds(trial, seed, load)
        if load.filled:
            await player.fill()
        until = time.monotonic() + load.most_s
        for number in range(rounds):
            if time.monotonic() > until:
                break
            totals = await player.play()
            say(f"round {number + 1}: {totals.acknowledged} orders, {sum(totals.faults.values())} faults")
            if totals.wrong:
                break
        if load.moves and not player.totals.wrong:
            await player.end()
        return player.totals
    finally:
        await asyncio.to_thread(trial.stop)


async def outages(seed: int, directory: Path, say: Callable[[str], object] = print) -> Totals:
    """One round for each kind of outage, and how long after its end everything acknowledged was kept."""
    trial = TrialSet(directory, hosts=RoundLoad().hosts, settings=SETTINGS)
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
    """1 when anything was lost, leaked or stuck, or an audit found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="logs of every process (default: a new one, said at the end)")
    parser.add_argument("--hosts", type=int, default=RoundLoad().hosts)
    parser.add_argument("--servers", type=int, help="that are booted first, and stay (default: 24 come by and by)")
    parser.add_argument("--moves", type=int, default=0, help="servers that are moved in each round")
    parser.add_argument("--kills", action="store_true", help="only kill -9 of APIs, conductors and agents")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after these no round begins")
    parser.add_argument("--outages", action="store_true", help="instead: one round for each kind of outage")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started us with SIGINT ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that no process stays behind
    directory = options.directory or Path(tempfile.mkdtemp(prefix="moorage-faults-"))
    load = RoundLoad(
        options.hosts,
        options.servers or RoundLoad().standing,
        bool(options.servers),
        options.moves,
        options.kills,
        60 * options.minutes,
    )
    work = outages(options.seed, directory) if options.outages else play(options.rounds, options.seed, directory, load)
    totals = asyncio.run(work)
    for line in (*totals.lines(), *totals.wrong, f"logs: {directory}"):
        sys.stdout.write(line + "\n")
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
