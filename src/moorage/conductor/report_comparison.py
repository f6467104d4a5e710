"""Compares full reports of hosts with the records, guest by guest (RULES §23)."""

import logging
from collections.abc import Mapping

from moorage.bus import subjects
from moorage.bus.host_messages import HostReport, ServersOfHost
from moorage.bus.messages import encode
from moorage.bus.transport import Bus
from moorage.conductor import returned_hosts
from moorage.conductor.agent_identity import note
from moorage.conductor.device_comparison import DeviceComparison
from moorage.conductor.guest_reconciliation import Belonging, Judged
from moorage.conductor.known_hosts import KnownHost
from moorage.model.clock import Clock
from moorage.model.ids import CellId
from moorage.model.server import ApiPowerState
from moorage.placement.engine import Engine
from moorage.sql import Database
from moorage.store.cell import servers as cell_servers
from moorage.store.region import numbers

logger = logging.getLogger(__name__)

UNDECIDED_AGAIN_S = 5.0


class ReportComparison:
    """For the hosts of one cell."""

    def __init__(
        self,
        belonging: Belonging,
        cell: CellId,
        bus: Bus,
        clock: Clock,
        region: Database,
        engine: Engine,
        cells: Mapping[CellId, Database],
    ) -> None:
        """`cells`: all cells, including this one, for servers that left it."""
        self.cells = cells
        self._belonging = belonging
        self._cell = cell
        self._bus = bus
        self._clock = clock
        self._database = cells[cell]
        self._region = region
        self._engine = engine
        self.devices = DeviceComparison(cells[cell], region)

    async def compare(self, known: KnownHost, report: HostReport) -> None:
        """Compare guest by guest: the host is told which of its guests are wrong, and records show which are gone.

        A recorded guest that is not in the list counts as gone when it was missing in two lists in a row: the first may
        have been under way when the guest was made.
        """
        await self._learn_turns(report)
        judged = await self._belonging.judge(report.host, report.guests)
        if judged.shown:
            await self._region.write(lambda tx: numbers.shown(tx, judged.shown))
        await self.send_wrong_turns(report.host, judged)
        now = self._clock.monotonic()
        known.compared, known.differs = now, 0
        whole = report.guests_in_all is None or report.guests_in_all <= len(report.guests)
        absent = judged.absent if whole else frozenset()
        known.reported_guests, known.reports = report.guests if whole else None, known.reports + 1
        if gone := absent & known.absent:
            logger.warning("host %s no longer has guests of %s", report.host, ", ".join(sorted(gone)))
            states = dict.fromkeys(gone, ApiPowerState.NOSTATE)
            await self._database.write(lambda tx: cell_servers.observe(tx, report.host, states))
        known.absent = absent - gone
        if judged.left_alone - known.left_alone:
            named = ", ".join(sorted(judged.left_alone))
            logger.warning("host %s has guests that no record knows; they are left alone: %s", report.host, named)
        known.left_alone = judged.left_alone
        if judged.doubtful - known.doubtful:
            named = ", ".join(sorted(judged.doubtful))
            logger.error("host %s: a database went back, so these servers are left alone: %s", report.host, named)
        known.doubtful = judged.doubtful
        waits = bool(known.absent or judged.undecided)
        if whole and await returned_hosts.settle(
            report.host,
            report.guests,
            int(self._clock.now() * 1_000_000),
            self._database,
            self._region,
            self._engine,
            self.cells,
        ):
            waits = True
        if await self.devices.compare(known, report, now):
            waits = True
        if waits:
            known.want(now, UNDECIDED_AGAIN_S)
        await note(self._database, known)

    async def _learn_turns(self, report: HostReport) -> None:
        """Before anything is judged: a host may have obeyed operations that the region has lost (RULES §26)."""
        if not report.turns:
            return
        known = await self._region.read(lambda tx: numbers.of(tx, report.turns))
        beyond = {each: seq for each, seq in report.turns.items() if each in known and seq > known[each].op_seq}
        if beyond:
            named = ", ".join(sorted(beyond))
            logger.error("host %s has obeyed operations that the region does not know: %s", report.host, named)
            await self._region.write(lambda tx: numbers.overtaken(tx, beyond))

    async def send_wrong_turns(self, host: str, judged: Judged) -> None:
        """Tell the host which guests it must not have, or must have in another state; sends nothing when all is right."""
        if judged.wrong:
            await self._bus.publish(
                subjects.to_host(self._cell, host), encode(ServersOfHost("", judged.wrong, knows_senders=True))
            )
