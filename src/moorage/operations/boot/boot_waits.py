"""A boot that was asked to wait: where no host will do it sleeps, with its ports, and is woken by what frees what it lacked.

It sleeps for want of a host alone. A failure of hosts that have room ends it as ever. Who wakes it is `conductor/waking.py`; what was
freed between its search and its sleep is found there, because nobody is taken to be without a host before a search that begins after
its row was committed.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from moorage.model.errors import Forbidden, NoCapacity, OverQuota
from moorage.model.server import Server
from moorage.model.verdict import FAULT_CHARACTERS_MAX, FAULT_START, DecisionRecord, fault_message
from moorage.model.waiting import Wait, requested_limit_s
from moorage.model.world import Ask
from moorage.operations.boot.boot_claim import HostClaim
from moorage.operations.boot.boot_input import BootRun, Claim
from moorage.operations.context import SagaContext
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.sleepers import WAITING_BOOTS
from moorage.saga import Sleep
from moorage.scheduler.lacks import causes_of, kind_of, lacks
from moorage.sql import Tx, label
from moorage.store.region import servers as region_servers
from moorage.store.region import waiting
from moorage.store.region.waiting import WaitingServer

US_PER_S = 1_000_000
SLEPT_LONG_S = 60.0
"""Who slept for longer was not woken in vain all the time."""
REST_FIRST_S, REST_MOST_S = 0.5, 30.0
"""Who is woken in vain time and again is not searched for meanwhile: another service refuses what the picture promises."""
MISSES_NAMED = 5
NOT_ALLOWED = (
    "Servers that wait for a host are not allowed here: Policy doesn't allow moorage:servers:wait to be performed."
)


class Sleeping(msgspec.Struct, frozen=True):
    """What a journal keeps of one sleep."""

    since: int
    until: int
    causes: tuple[str, ...] = ()
    counts: dict[str, int] = {}


async def requested_wait(context: SagaContext, server: Server, *, may_wait: bool) -> Wait | None:
    """Of a boot that is being accepted. Raises Invalid, Forbidden where policy does not let it, OverQuota when too many wait."""
    limits = context.settings.waiting
    limit_s = requested_limit_s(server.hints, server.flavor.extra_specs, limits)
    if limit_s is None:
        return None
    if not may_wait or not limits.servers_max:
        raise Forbidden(NOT_ALLOWED if limits.servers_max else "Servers that wait for a host are not allowed here.")
    with label("waiting"):
        over = await context.region.read(lambda tx: _over(tx, context, server.project))
    if over:
        raise OverQuota(f"Quota exceeded for servers that wait for a host: {over}.")
    return Wait(now_us() + int(limit_s * US_PER_S), limit_s)


def _over(tx: Tx, context: SagaContext, project: str) -> str:
    """Which limit is reached; empty: none."""
    limits = context.settings.waiting
    if waiting.counted(tx, project) >= limits.project_servers_max:
        return f"{limits.project_servers_max} of the project wait already"
    if waiting.counted(tx) >= limits.servers_max:
        return "as many as may wait do so already"
    return ""


async def claim_or_sleep(
    run: BootRun, claim: HostClaim, wait: Wait, leave_last_host: Callable[[BootRun], Awaitable[None]]
) -> Claim:
    """The claim, unless there is no host; then what the last attempt left is given back, and it sleeps.

    Raises Sleep then; NoCapacity when its time is over, too many wait, or hosts have room that failed this boot before.
    """
    ask = claim.plain_ask()
    line = _Line(run, wait, ask)
    known, others = await line.read()
    if known is None and others is not None:
        raise line.sleep(NoCapacity(fault_message(others)), known, others)
    try:
        return await claim.take_best()
    except NoCapacity as none:
        if claim.only_blamed_have_room(ask):
            raise
        if now_us() >= wait.until_us:
            suffix = f" (after it waited for {wait.limit_s:.0f} s)"
            public = none.public[: FAULT_CHARACTERS_MAX - len(suffix)] + suffix
            raise NoCapacity(public, private=none.private) from None
        if run.causes_since_sleep:
            await leave_last_host(run)
        raise line.sleep(none, known) from None


class _Line:
    """The place of one boot among those that wait."""

    def __init__(self, run: BootRun, wait: Wait, ask: Ask) -> None:
        self._run, self._wait, self._ask = run, wait, ask
        self._kind = kind_of(ask)
        server = run.input.server
        self._came_at = server.created_at + server.launch_index

    async def read(self) -> tuple[WaitingServer | None, dict[str, int] | None]:
        """Its row, if it slept before, and why one that came earlier for the same found no host, if one sleeps."""
        with label("waiting"):
            return await self._run.context.region.read(
                lambda tx: (
                    waiting.get(tx, self._run.operation),
                    waiting.counts_of_earlier(tx, self._kind, self._came_at),
                )
            )

    def sleep(self, none: NoCapacity, known: WaitingServer | None, counts: Mapping[str, int] | None = None) -> Sleep:
        """`counts`: cause → how many hosts, where no search was made."""
        run, now = self._run, now_us()
        causes = causes_of(lacks(self._ask, run.context.placement.world()))
        ledger = _ledger(none)
        refused = dict(counts or {}) if ledger is None else dict(ledger.counts)
        in_vain = _in_vain(known, now)
        rest_s = 0.0 if in_vain < 2 else min(REST_MOST_S, REST_FIRST_S * 2.0 ** min(in_vain - 2, 10))
        row = WaitingServer(
            operation=run.operation,
            server=run.input.server.id,
            project=run.input.server.project,
            saga=WAITING_BOOTS[bool(run.input.server.volumes)],
            kind=self._kind,
            causes=causes,
            counts=refused,
            ask=msgspec.json.encode(self._ask),
            came_at=self._came_at,
            since=now if known is None else known.since,
            until=self._wait.until_us,
            slept_at=now,
            rest_until=now + int(rest_s * US_PER_S),
            in_vain=in_vain,
        )

        def fall_asleep(tx: Tx) -> None:
            if known is None:
                waiting.alone_to_count(tx)
                if over := _over(tx, run.context, row.project):
                    suffix = f" It does not wait: {over}."
                    public = none.public[: FAULT_CHARACTERS_MAX - len(suffix)] + suffix
                    raise NoCapacity(public, private=none.private)
            if run.causes_since_sleep:
                region_servers.unplace(tx, row.server, run.operation)
                run.context.placement.release(tx, row.server)  # the picture reads it with the next news
            waiting.fall_asleep(tx, row)

        public = f"waiting for a host: {none.public.removeprefix(FAULT_START)}"
        misses = () if ledger is None else ledger.misses[:MISSES_NAMED]
        named = "; ".join((public, *(f"{each.host}: {each.why}" for each in misses))) if misses else ""
        kept = Sleeping(row.since, row.until, causes, refused)
        return Sleep(public, named, msgspec.json.encode(kept), fall_asleep)


def _in_vain(known: WaitingServer | None, now: int) -> int:
    if known is None or known.woken_at is None:
        return 0
    return 1 if known.woken_at - known.slept_at > SLEPT_LONG_S * US_PER_S else known.in_vain + 1


def _ledger(none: NoCapacity) -> DecisionRecord | None:
    try:
        return msgspec.json.decode(none.private, type=DecisionRecord)
    except msgspec.MsgspecError:
        return None  # no search was made: the sentence says why
