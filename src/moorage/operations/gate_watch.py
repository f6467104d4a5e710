"""The gates as they are now, in one process: levels from the picture, credentials from what every conductor says of its own.

A conductor tries its credentials every half minute and writes what came of it when that differs; every process reads what
the living ones wrote.  So whoever begins an operation decides on what those who will tell it can do, and a boot itself costs
no statement and no call for that.

The same rows say whom each conductor leaves alone because it keeps failing (N19), for people to see.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from moorage.clients.network import NetworkBackend
from moorage.clients.replies import CREDENTIALS
from moorage.model.clock import Clock
from moorage.model.errors import Forbidden, Problem, Refusal, Unauthenticated
from moorage.model.ids import ConductorId
from moorage.model.service_health import CircuitSeen, LeftAlone
from moorage.operations.context import SagaContext
from moorage.operations.gates import (
    ConductorCredentials,
    Credentials,
    GateFacts,
    Gates,
    decide_by,
    hosts_of,
    lowest_level,
)
from moorage.sql import label
from moorage.store.region import conductor_health

POLL_EVERY_S = 10.0
TRY_EVERY_S = 30.0
NOT_READ_YET = "its credentials have not been tried yet"

logger = logging.getLogger(__name__)


class GateWatch:
    """One per process that begins or executes operations."""

    def __init__(
        self,
        context: SagaContext,
        clock: Clock,
        *,
        pin: int | None = None,
        circuits: Callable[[], tuple[CircuitSeen, ...]] = tuple,
    ) -> None:
        self._context = context
        self._clock = clock
        self._pin = pin
        self._circuits = circuits
        self._published_open: frozenset[tuple[str, str]] = frozenset()
        self._left_alone: tuple[LeftAlone, ...] = ()
        self._me: ConductorId | None = None
        self._mine: ConductorCredentials | None = None
        self._tried_at = -TRY_EVERY_S
        self._conductors: tuple[ConductorCredentials, ...] = ()
        self._life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Know enough to decide, then keep looking."""
        await self.poll()
        self._life = asyncio.create_task(self._poll_forever(), name="gates")

    async def stop(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def become(self, conductor: ConductorId) -> None:
        """This process executes operations too, and has its lease: its credentials count, and are tried again and again.

        With a new lease comes a new id, under which all is told once more.
        """
        self._me = conductor
        mine = self._mine
        if mine is not None and mine.conductor != str(conductor):
            self._mine = msgspec.structs.replace(mine, conductor=str(conductor))
            self._published_open = frozenset()
            with label("look:gates"):
                await self._context.region.write(
                    lambda tx: conductor_health.report(tx, conductor, mine.state.value, mine.why)
                )
        await self.poll()

    # ------------------------------------------------------------------------------------------------ asking

    def gates(self) -> Gates:
        """What begins now is done this way."""
        return decide_by(lowest_level(self._context.placement.world()), self._pin, self._conductors)

    def facts(self) -> GateFacts:
        """Everything that decides, for people."""
        return GateFacts(hosts_of(self._context.placement.world()), self._conductors, self._pin)

    def service_circuits(self) -> tuple[LeftAlone, ...]:
        """Whom this process leaves alone, as it is now, and whom the other conductors do, as they last said."""
        mine = self._name_of_mine()
        own = tuple(LeftAlone(mine, each) for each in self._circuits())
        return own + tuple(each for each in self._left_alone if each.process != mine)

    def _name_of_mine(self) -> str:
        return "this front desk" if self._me is None else str(self._me)

    # ------------------------------------------------------------------------------------------------ looking

    async def _poll_forever(self) -> None:
        while True:
            await self._clock.sleep(POLL_EVERY_S)
            try:
                if self._me is not None:
                    await self._publish_own(self._me)
                await self.poll()
            except Exception as failure:  # noqa: BLE001  whatever it is, the next look is soon
                logger.warning("the gates could not be looked at: %r %s", failure, getattr(failure, "private", ""))

    async def _publish_own(self, me: ConductorId) -> None:
        if self._wants_trying():
            await self.try_mine(me)
        circuits = self._circuits()
        now_open = frozenset((each.neighbour, each.calls) for each in circuits)
        if now_open != self._published_open:
            told = msgspec.json.encode(circuits).decode()
            with label("look:gates"):
                await self._context.region.write(lambda tx: conductor_health.report_circuits(tx, me, told))
            self._published_open = now_open

    def _wants_trying(self) -> bool:
        unknown = self._mine is None or self._mine.state is Credentials.UNKNOWN
        return unknown or self._clock.monotonic() - self._tried_at >= TRY_EVERY_S

    async def poll(self) -> None:
        """Read what the living conductors say."""
        with label("look:gates"):
            rows = await self._context.region.read(conductor_health.of_the_living)
        before, self._conductors = self._conductors, tuple(credentials_of(*row[:4]) for row in rows)
        self._left_alone = tuple(
            LeftAlone(str(row[0]), each) for row in rows for each in msgspec.json.decode(row[4], type=list[CircuitSeen])
        )
        if before and before != self._conductors:
            logger.info("credentials for the network service: %s", ", ".join(map(_describe, self._conductors)))

    async def try_mine(self, me: ConductorId) -> ConductorCredentials:
        """What takes the roles that we need, tried for nothing; written down when the answer differs from the last one's."""
        self._tried_at = self._clock.monotonic()
        state, why = await try_credentials(self._context.network)
        if state is Credentials.UNKNOWN and self._mine is not None and self._mine.state is not state:
            logger.info("the network service could not be asked about our credentials, they count as before: %s", why)
            return self._mine
        mine = ConductorCredentials(str(me), state, why)
        if mine != self._mine:
            self._mine = mine
            with label("look:gates"):
                await self._context.region.write(lambda tx: conductor_health.report(tx, me, state.value, why))
            if state is Credentials.REFUSED:
                logger.warning(
                    "the network service does not accept this conductor's credentials (%s): ports are made and bound by hosts "
                    "of level 1 and 2, and the next release will not start like this; see [service_user]",
                    why,
                )
        return mine


async def try_credentials(network: NetworkBackend) -> tuple[Credentials, str]:
    """Whether the network service takes our credentials, and if not, why."""
    try:
        await network.try_credentials()
    except (Unauthenticated, Forbidden) as refused:
        return Credentials.REFUSED, refused.private or refused.public
    except Refusal:  # it knows us, and has no such thing
        return Credentials.WORKING, ""
    except Problem as problem:
        state = Credentials.REFUSED if problem.code == CREDENTIALS else Credentials.UNKNOWN
        return state, problem.private or problem.public
    return Credentials.WORKING, ""


def credentials_of(me: ConductorId, host: str, state: str | None, why: str | None) -> ConductorCredentials:
    """As a conductor's row says."""
    known = {each.value: each for each in Credentials}
    told = known.get(state or "", Credentials.UNKNOWN)
    return ConductorCredentials(f"{me} on {host}", told, NOT_READ_YET if state is None else why or "")


def _describe(each: ConductorCredentials) -> str:
    return f"{each.conductor}: {each.state.value}"
