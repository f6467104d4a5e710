"""The engine: the interface of placement for operations and the API; one per process.

    verdict = engine.rank(ask)
    for choice in verdict.best:
        with engine.holding(choice, ask):                       # rivals in this process see it at once
            answer = await region.write(work)                   # in it: engine.claim(tx, owner, choice, ask, ...)
        if isinstance(answer, Claimed): engine.claimed(answer)  # pending → confirmed
        else: engine.lost(answer)                               # the true numbers; try the next

`rank` reads the cache and does not wait; before a refusal, `rank_fresh` ranks again after one catch-up.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from moorage.model.decision_log import Place, Subject
from moorage.model.ids import HostId, ProviderId, SegmentId
from moorage.model.retry import Backoff
from moorage.model.verdict import Claimed, InventoryState, Shortage, Verdict
from moorage.model.world import Ask, Choice, Group, World
from moorage.placement import claims, inventory, migration_claims
from moorage.placement.cache.bulk_load import Loading, no_search_for_garbage
from moorage.placement.cache.freed import NotingCache
from moorage.placement.decisions.no_recorder import NoRecorder
from moorage.placement.decisions.recorder import DecisionRecorder
from moorage.placement.inventory import DeviceReport, HostInventory, SegmentReport
from moorage.placement.shared_rounds import SharedRounds
from moorage.sql import Database, Tx, label
from moorage.store.region.placement.allocation_writes import WriteResult
from moorage.store.region.placement.change_feed import NEVER, ProviderChanges, since
from moorage.store.region.placement.claim_statements import Key, Owner
from moorage.store.region.placement.provider_statements import forget_gone

CATCH_UP_EVERY_S = 0.2
CATCH_UP_AGAIN_MOST_S = 5.0
"""The longest pause after failures; a caller that needs a fresh cache reads at once."""
RELOAD_AFTER_S = 1800.0
"""Half the time for which deletions leave a row in `gone`."""

SWEEP_EVERY_ROUNDS = 3000
"""How often rows of `gone` older than an hour are removed (every 10 minutes at the usual pace)."""

DEVICES_PER_COMMIT_MAX = 200

Ranker = Callable[[Ask, World], Verdict]
HostAggregate = tuple[str, Mapping[str, str], Sequence[str]]
"""Name, metadata, names of hosts."""


class Engine:
    """The cache, kept fresh, and claims that SQL decides.

    `rank` is the scheduler's function, passed in, because placement does not import the scheduler.
    """

    def __init__(
        self,
        region: Database,
        rank: Ranker,
        *,
        aggregates: Callable[[Tx], Sequence[HostAggregate]] | None = None,
        recorder: DecisionRecorder | None = None,
        clock: Callable[[], float] | None = None,
        every_s: float = CATCH_UP_EVERY_S,
    ) -> None:
        """`aggregates` reads those of the Compute API, which a Placement service alone does not have; `recorder` keeps decisions."""
        self._recorder = recorder or NoRecorder()
        self._region = region
        self._rank = rank
        self._aggregates, self._aggregates_wanted = aggregates, False
        self._clock = clock
        self._every_s = every_s
        self._horizon, self._read_at = NEVER, 0.0
        self._rounds = SharedRounds(self._catch_up)
        self._keeper: asyncio.Task[None] | None = None
        self.picture = NotingCache()
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Load everything, then keep it fresh."""
        await self.catch_up()
        self._keeper = asyncio.create_task(self._keep(), name="placement-picture")

    async def close(self) -> None:
        """Stop the updates."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._keeper = None
        await self._rounds.close()
        await self._recorder.close()

    # ------------------------------------------------------------------------------------------------ the cache

    async def _keep(self) -> None:
        rounds, backoff, pause_s = 0, Backoff(self._every_s, CATCH_UP_AGAIN_MOST_S), self._every_s
        while True:
            await asyncio.sleep(pause_s)
            rounds += 1
            pause_s = self._every_s
            try:
                await self.catch_up()
                if rounds % SWEEP_EVERY_ROUNDS == 0:
                    await self._region.write(forget_gone)
                self.failure = None
                backoff.reset()
            except Exception as failure:  # noqa: BLE001  the next round tries again; callers that need it fresh get the error
                self.failure = failure
                pause_s = backoff.next_s()

    async def catch_up(self) -> None:
        """Read the changes. Callers share a round, but never one that began before they called (RULES §6.4)."""
        await self._rounds.join()

    async def _catch_up(self) -> None:
        now = asyncio.get_running_loop().time() if self._clock is None else self._clock()
        with label("picture"):
            if self._horizon == NEVER or now - self._read_at >= RELOAD_AFTER_S or self.picture.wasteful:
                await self._load()
            else:
                changes, aggregates = await self._region.read(self._read_changes)
                if aggregates is not None:
                    self._aggregates_wanted = False
                    self.picture.set_host_aggregates(aggregates)
                self.apply(changes)
        self._read_at = now

    @property
    def age_s(self) -> float:
        """Seconds since the cache was last known to be complete."""
        now = asyncio.get_running_loop().time() if self._clock is None else self._clock()
        return now - self._read_at

    def _read_changes(self, tx: Tx) -> tuple[ProviderChanges, Sequence[HostAggregate] | None]:
        """The changes. When a host has changed, the aggregates of the Compute API are read too.

        Every change of an aggregate stamps its hosts. The aggregates are read after the hosts, so they are never older
        than the versions with which a claim is checked.
        """
        changes = since(tx, self._horizon, self.picture.version_of)
        if self._aggregates is None or not (changes.hosts or self._aggregates_wanted):
            return changes, None
        return changes, self._aggregates(tx)

    async def read_aggregates(self) -> int:
        """Read the aggregates of the Compute API, whether or not a host was stamped; return how many there are."""
        self._aggregates_wanted = True
        await self.catch_up()
        return len(self.picture.host_aggregates)

    async def _load(self) -> None:
        """Read everything into a picture beside the one in use, which it then replaces (P12)."""
        with no_search_for_garbage():
            loading, aggregates = await self._region.read(self._read_everything)
            fresh = await asyncio.to_thread(loading.finish)
        fresh.set_host_aggregates(self.picture.host_aggregates if aggregates is None else aggregates)
        assert isinstance(fresh, NotingCache)
        fresh.take_over(self.picture)
        self.picture, self._horizon = fresh, loading.horizon

    def _read_everything(self, tx: Tx) -> tuple[Loading, Sequence[HostAggregate] | None]:
        loading = Loading.read(self.picture.successor, tx)
        return loading, None if self._aggregates is None else self._aggregates(tx)

    def apply(self, changes: ProviderChanges) -> None:
        """Apply what was read."""
        self.picture.apply(changes)
        self._horizon = changes.horizon

    def world(self) -> World:
        """All hosts in columns, as this process sees them now; read it before the next await."""
        return self.picture.world()

    # ------------------------------------------------------------------------------------------------ decisions

    def rank(self, ask: Ask) -> Verdict:
        """The best hosts by the current cache, minus what this process is about to claim.

        Each choice names the versions of its providers, so that the claim can check that they are unchanged.
        """
        verdict = self._rank(ask, self.picture.world())
        return msgspec.structs.replace(verdict, best=tuple(map(self._as_seen, verdict.best)))

    def _as_seen(self, choice: Choice) -> Choice:
        concerned = (ProviderId(choice.host), *choice.segments, *choice.providers.values())
        versions = {each: self.picture.version_of(each) for each in concerned if each is not None}
        known = {each: version for each, version in versions.items() if version is not None}
        return msgspec.structs.replace(choice, versions=known)

    def rank_on(self, ask: Ask, world: World) -> Verdict:
        """Rank with this process's scheduler on another world."""
        return self._rank(ask, world)

    @property
    def decision_records(self) -> dict[str, int]:
        """How many records of decisions are `kept` in files, and how many were `lost`; both are 0 where decisions are not kept."""
        return {"kept": self._recorder.stored, "lost": self._recorder.lost}

    def decide(self, ask: Ask, subject: Subject) -> Verdict:
        """`rank` for a claim that follows at once: it is recorded with what it looked at, and can be replayed."""
        verdict = self.rank(ask)
        decision = self._recorder.decided(self.picture, ask, verdict, subject)
        return msgspec.structs.replace(verdict, ledger=msgspec.structs.replace(verdict.ledger, decision=decision))

    async def decide_fresh(self, ask: Ask, subject: Subject) -> Verdict:
        """The same after one catch-up."""
        await self.catch_up()
        return self.decide(ask, subject)

    async def rank_fresh(self, ask: Ask) -> Verdict:
        """Rank after one catch-up: no request is refused because of stale numbers."""
        await self.catch_up()
        return self.rank(ask)

    @contextmanager
    def holding(self, choice: Choice, ask: Ask) -> Iterator[None]:
        """While the commit is under way its amounts count as taken here, so that the next decision avoids them."""
        parts = claims.portions(choice, ask)
        self.picture.pend(parts, +1)
        try:
            yield
        finally:
            self.picture.pend(parts, -1)

    def claim(
        self,
        tx: Tx,
        owner: Owner,
        host: Choice,
        ask: Ask,
        *,
        replace: bool,
        stays: Mapping[Key, int] | None = None,
    ) -> Claimed | Shortage:
        """Claim inside the caller's transaction; on a Shortage the caller calls `tx.refuse(shortage)`."""
        return claims.claim(tx, owner, host, ask, replace=replace, stays=stays)

    def claimed(self, claimed: Claimed) -> None:
        """The claim is committed: apply its numbers."""
        self.picture.settle(claimed.rows)
        self._recorder.taken(claimed.consumer, Place.of(claimed.choice))
        if claimed.group is not None:
            group_id, left, joined = claimed.group
            self.picture.left_group(group_id, left)
            group = self.picture.groups.setdefault(group_id, Group())
            if left is not None and group.hosts.get(left, 0) > 1:
                group.hosts[left] -= 1
            elif left is not None:
                group.hosts.pop(left, None)
            group.hosts[joined] = group.hosts.get(joined, 0) + 1

    def lost(self, shortage: Shortage) -> None:
        """Another claim was first: apply the true numbers."""
        self.picture.settle(shortage.rows)
        if shortage.group is not None and shortage.group_home is not None:
            self.picture.groups.setdefault(shortage.group, Group()).home = shortage.group_home

    def settle(self, rows: Sequence[InventoryState]) -> None:
        """Apply the numbers that a committed release, extension or move returned."""
        self.picture.settle(rows)

    def settle_writes(self, result: WriteResult) -> None:
        """Apply the numbers of requests of the Placement API, with the generations that they raised."""
        self.picture.settle(result.rows)
        self.picture.settle_generations(result.moved)

    def release(self, tx: Tx, consumer: str) -> tuple[InventoryState, ...]:
        """Give everything back; safe twice. Hand the rows to `settle` after the commit, or let catch-up find them."""
        self._recorder.released(consumer)
        return claims.release(tx, consumer)

    def keep_addresses(
        self, tx: Tx, consumer: str, stays: Mapping[Key, int] | None = None
    ) -> tuple[InventoryState, ...]:
        """Give back everything but addresses: a server that leaves its host keeps its ports."""
        self._recorder.released(consumer, addresses_stay=True)
        return claims.keep_addresses(tx, consumer, stays)

    def extend(self, tx: Tx, consumer: str, host: Choice, ask: Ask, operation: str) -> Claimed | Shortage:
        """Claim more for a consumer that has allocations already."""
        return claims.extend(tx, consumer, host, ask, operation)

    def retract(
        self, tx: Tx, consumer: str, amounts: dict[Key, int], operation: str, function_of: str | None = None
    ) -> tuple[InventoryState, ...]:
        """Release what this operation's `extend` claimed; a repeat is safe, also when nothing was claimed."""
        return claims.retract(tx, consumer, amounts, operation, function_of)

    def shrink(
        self, tx: Tx, consumer: str, amounts: dict[Key, int], function_of: Collection[str] = ()
    ) -> tuple[InventoryState, ...]:
        """Release a part; `function_of`: all ids of a port that is a virtual function."""
        return claims.shrink(tx, consumer, amounts, function_of)

    def adjust(
        self, tx: Tx, consumer: str, amounts: Mapping[Key, tuple[int, int]], *, force: bool = False
    ) -> tuple[InventoryState, ...] | None:
        """Change what is held of each row for one purpose; returns None, to be rolled back, when it does not fit."""
        return claims.adjust(tx, consumer, amounts, force=force)

    def correct(self, tx: Tx, consumer: str, resource: str, truth: dict[ProviderId, int]) -> tuple[InventoryState, ...]:
        """Set a consumer's allocations of one class to the amounts that another service reports."""
        return claims.correct(tx, consumer, resource, truth)

    def move(
        self,
        tx: Tx,
        owner: Owner,
        migration: str,
        host: Choice,
        ask: Ask,
        *,
        stays: Mapping[Key, int] | None = None,
        leaves: Mapping[Key, int] | None = None,
    ) -> Claimed | Shortage:
        """Begin a move, or take an alternate; see `migration_claims.move` (RULES §11)."""
        return migration_claims.move(tx, owner, migration, host, ask, stays=stays, leaves=leaves)

    def move_back(
        self, tx: Tx, server: str, migration: str, *, before: Mapping[Key, int] | None = None
    ) -> tuple[InventoryState, ...]:
        """Undo of a move; safe twice."""
        self._recorder.reverted(server, migration)
        return migration_claims.move_back(tx, server, migration, before=before)

    # -------------------------------------------------------------------------------------------------- reports

    async def report_host(self, report: HostInventory) -> HostId:
        """Write inventory, traits and facts of a host, where they differ. Raises Conflict for another host's node."""
        host = await self._region.write(lambda tx: inventory.report_host(tx, report))
        self.picture.set_level(report.host, report.level)
        await self.catch_up()
        return host

    async def report_segments(self, reports: Sequence[SegmentReport]) -> list[ProviderId]:
        """Write address pools and the hosts wired to them."""

        def work(tx: Tx) -> list[ProviderId]:
            return [inventory.report_segment(tx, report) for report in reports]

        segments = await self._region.write(work)
        await self.catch_up()
        return segments

    async def report_devices(self, reports: Sequence[DeviceReport]) -> list[str]:
        """Write providers below hosts, parents before children; return the hypervisors that do not exist yet."""
        if not reports:
            return []
        missing: dict[str, None] = {}
        for start in range(0, len(reports), DEVICES_PER_COMMIT_MAX):
            batch = reports[start : start + DEVICES_PER_COMMIT_MAX]

            def work(tx: Tx, batch: Sequence[DeviceReport] = batch) -> list[str]:
                return [each.hypervisor for each in batch if not inventory.report_device(tx, each)]

            missing |= dict.fromkeys(await self._region.write(work))
        await self.catch_up()
        return list(missing)

    async def drop_segment(self, segment: SegmentId) -> bool:
        """Remove a segment that the network service deleted. Returns False while its addresses are held."""
        done = await self._region.write(lambda tx: inventory.drop_segment(tx, segment))
        await self.catch_up()
        return done

    async def set_host_enabled(self, host: HostId, enabled: bool) -> bool:
        """Enable or disable a host, for every process. Returns False when there is no such host."""
        done = await self._region.write(lambda tx: inventory.set_enabled(tx, host, enabled))
        await self.catch_up()
        return done

    def forced_down(self, cell: str) -> set[str]:
        """Names of the cell's hosts that the region has as forced down, as this process knows it."""
        facts = (self.picture.hosts[each] for each in self.picture.forced_down)
        return {each.host for each in facts if each.cell == cell}

    def set_alive(self, host: str, alive: bool) -> None:
        """Whether this process received the host recently; hosts count as alive until set otherwise."""
        self.picture.set_alive(host, alive)

    def set_level(self, host: str, level: int) -> None:
        """The last protocol level of its agent."""
        self.picture.set_level(host, level)

    def count_failure(self, host: HostId, *, failed: bool) -> None:
        """Count a build there that failed or succeeded."""
        self.picture.count_failure(host, failed=failed)

    def set_host_aggregates(self, aggregates: Sequence[HostAggregate]) -> None:
        """Set the aggregates of the Compute API, when nothing reads them for the engine."""
        self.picture.set_host_aggregates(aggregates)

    def host_named(self, name: str) -> HostId | None:
        """The id of the host with this name, if the cache has it."""
        slot = self.picture.slots_by_name.get(name)
        return None if slot is None else self.picture.host_ids[slot]
