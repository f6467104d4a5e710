"""The current gates in one process: hosts' levels from the world, credentials from the rows that conductors write.

Each conductor tries its credentials for the network service every half minute and writes the result when it changes;
every process reads the rows of the living conductors. So a process that begins an operation decides by what the
conductors can do, and a boot needs no statement or call for that.

The same rows list the services whose circuits are open in each conductor (N19), for operators.
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
    """Keeps the gates of one process that begins or executes operations."""

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
        """Read once what a decision needs, then poll in the background."""
        await self.poll()
        self._life = asyncio.create_task(self._poll_forever(), name="gates")

    async def stop(self) -> None:
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def become(self, conductor: ConductorId) -> None:
        """This process executes operations and has its lease: its credentials count, and are tried periodically.

        With a new lease comes a new id, and everything is written once more under that id.
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

    # --------------------------------------------------------------------------------------------- the gates

    def gates(self) -> Gates:
        """The behaviour of operations that begin now."""
        return decide_by(lowest_level(self._context.placement.world()), self._pin, self._conductors)

    def facts(self) -> GateFacts:
        """The facts that decide the gates, for operators."""
        return GateFacts(hosts_of(self._context.placement.world()), self._conductors, self._pin)

    def service_circuits(self) -> tuple[LeftAlone, ...]:
        """Services whose circuits are open: of this process as it is now, of other conductors as they last wrote."""
        mine = self._name_of_mine()
        own = tuple(LeftAlone(mine, each) for each in self._circuits())
        return own + tuple(each for each in self._left_alone if each.process != mine)

    def _name_of_mine(self) -> str:
        return "this front desk" if self._me is None else str(self._me)

    # ------------------------------------------------------------------------------------------------ polling

    async def _poll_forever(self) -> None:
        while True:
            await self._clock.sleep(POLL_EVERY_S)
            try:
                if self._me is not None:
                    await self._publish_own(self._me)
                await self.poll()
            except Exception as failure:  # noqa: BLE001  the next poll is soon
                logger.warning("the gates could not be read: %r %s", failure, getattr(failure, "private", ""))

    async def _publish_own(self, me: ConductorId) -> None:
        if self._wants_trying():
            await self.try_mine(me)
        circuits = self._circuits()
        now_open = frozenset((each.neighbour, each.calls) for each in circuits)
        if now_open != self._published_open:
            encoded = msgspec.json.encode(circuits).decode()
            with label("look:gates"):
                await self._context.region.write(lambda tx: conductor_health.report_circuits(tx, me, encoded))
            self._published_open = now_open

    def _wants_trying(self) -> bool:
        unknown = self._mine is None or self._mine.state is Credentials.UNKNOWN
        return unknown or self._clock.monotonic() - self._tried_at >= TRY_EVERY_S

    async def poll(self) -> None:
        """Read the rows of the living conductors."""
        with label("look:gates"):
            rows = await self._context.region.read(conductor_health.of_the_living)
        before, self._conductors = self._conductors, tuple(credentials_of(*row[:4]) for row in rows)
        self._left_alone = tuple(
            LeftAlone(str(row[0]), each) for row in rows for each in msgspec.json.decode(row[4], type=list[CircuitSeen])
        )
        if before and before != self._conductors:
            logger.info("credentials for the network service: %s", ", ".join(map(_describe, self._conductors)))

    async def try_mine(self, me: ConductorId) -> ConductorCredentials:
        """Try a call that needs our roles and has no effect; write the result when it differs from the last one."""
        self._tried_at = self._clock.monotonic()
        state, why = await try_credentials(self._context.network)
        if state is Credentials.UNKNOWN and self._mine is not None and self._mine.state is not state:
            logger.info("the network service did not answer about our credentials, which count as before: %s", why)
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
    """Return whether the network service accepts our credentials, and the reason if it does not."""
    try:
        await network.try_credentials()
    except (Unauthenticated, Forbidden) as refused:
        return Credentials.REFUSED, refused.private or refused.public
    except Refusal:  # the service accepts the credentials: it looked for the port and did not find it
        return Credentials.WORKING, ""
    except Problem as problem:
        state = Credentials.REFUSED if problem.code == CREDENTIALS else Credentials.UNKNOWN
        return state, problem.private or problem.public
    return Credentials.WORKING, ""


def credentials_of(me: ConductorId, host: str, state: str | None, why: str | None) -> ConductorCredentials:
    """The credentials as a conductor's row has them."""
    known = {each.value: each for each in Credentials}
    credentials = known.get(state or "", Credentials.UNKNOWN)
    return ConductorCredentials(f"{me} on {host}", credentials, NOT_READ_YET if state is None else why or "")


def _describe(each: ConductorCredentials) -> str:
    return f"{each.conductor}: {each.state.value}"
